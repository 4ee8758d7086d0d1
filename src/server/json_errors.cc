#include "server/json_errors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace quire {

ApiError validation_error(const std::string& message, std::string param) {
  return ApiError(400, "Bad Request", "1 validation error: " + message, std::move(param));
}

Error unsupported(std::string_view what, std::string param) {
  return invalid_argument(fmt::format("{} is not supported by this server", what), std::move(param));
}

int error_status(const Error& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return api->status();
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument:
      return 400;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kUnavailable:
      return 503;
    case ErrorKind::kResourceExhausted:
    case ErrorKind::kInternal:
      break;
  }
  return 500;
}

namespace {

std::string_view type_of(const Error& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return api->type();
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument:
      return "BadRequestError";
    case ErrorKind::kNotFound:
      return "NotFoundError";
    case ErrorKind::kUnavailable:
      return "ServiceUnavailableError";
    case ErrorKind::kResourceExhausted:
    case ErrorKind::kInternal:
      break;
  }
  return "InternalServerError";
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  // The common case by hand: no quote, backslash, control or non-ASCII byte.
  bool plain = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\') {
      plain = false;
      break;
    }
  }
  if (plain) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string error_json(int status, std::string_view type, std::string_view message, std::string_view param) {
  return fmt::format(R"({{"error":{{"message":{},"type":{},"param":{},"code":{}}}}})", json_string(message),
                     json_string(type), param.empty() ? "null" : json_string(param), status);
}

std::string error_json(const Error& error) {
  return error_json(error_status(error), type_of(error), error.what(), error.param());
}

HttpResponse error_response(int status, std::string_view type, std::string_view message, std::string_view param) {
  HttpResponse response;
  response.status = status;
  response.content_type = "application/json";
  response.body = error_json(status, type, message, param);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse error_response(const Error& error) {
  return error_response(error_status(error), type_of(error), error.what(), error.param());
}

}  // namespace quire
