#include "server/log_failure.h"

#include <string>

#include "base/log.h"

namespace quire {

void log_failure(const char* what, const std::exception& error) noexcept {
  try {
    log_error(std::string(what) + ": " + error.what());
  } catch (const std::exception&) {  // whoever failed is told by other means
  }
}

}  // namespace quire
