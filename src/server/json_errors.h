#pragma once
// Error answers: {"error":{"message","type","param","code"}}, the HTTP status being the code.
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http_types.h"

namespace quire {

// An error whose status or type is not what its kind says: a body that does not have the shape asked for, say.
class ApiError : public Error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = {})
      : Error(ErrorKind::kInvalidArgument, message, std::move(param)), status_(status), type_(std::move(type)) {}
  int status() const { return status_; }
  const std::string& type() const { return type_; }

 private:
  int status_;
  std::string type_;
};

// 400 for a body that is not what the endpoint reads: not JSON, a wrong type, a missing field.
ApiError validation_error(const std::string& message, std::string param = {});
// 400 for what a client may ask for elsewhere but this server does not have.
Error unsupported(std::string_view what, std::string param);

int error_status(const Error& error);
// One line of JSON. An empty param is written as null.
std::string error_json(int status, std::string_view type, std::string_view message, std::string_view param = {});
std::string error_json(const Error& error);
HttpResponse error_response(int status, std::string_view type, std::string_view message, std::string_view param = {});
HttpResponse error_response(const Error& error);

// Text as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);

}  // namespace quire
