#pragma once
// Error tiers: assert = our bug; quire::Error = ends one request or one command with a message that names the thing,
// the value and the limit; return value = an expected outcome. User input never reaches an assert.
#include <stdexcept>
#include <string>
#include <utility>

namespace quire {

enum class ErrorKind {
  kInvalidArgument,    // bad flag, field, file content           HTTP 400, exit 2
  kNotFound,           // missing file, unknown model             HTTP 404, exit 2
  kUnavailable,        // queue full, shutting down               HTTP 503, exit 1
  kResourceExhausted,  // does not fit in memory                  HTTP 500, exit 1
  kInternal,           // everything else                         HTTP 500, exit 1
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string param = {})
      : std::runtime_error(message), kind_(kind), param_(std::move(param)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& param() const { return param_; }  // the flag or field at fault, empty if none

 private:
  ErrorKind kind_;
  std::string param_;
};

inline Error invalid_argument(const std::string& message, std::string param = {}) {
  return Error(ErrorKind::kInvalidArgument, message, std::move(param));
}
inline Error not_found(const std::string& message, std::string param = {}) {
  return Error(ErrorKind::kNotFound, message, std::move(param));
}

}  // namespace quire
