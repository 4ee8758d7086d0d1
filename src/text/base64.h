#pragma once
#include <string>
#include <string_view>

namespace quire {

// Appends what base64 text (with padding) stands for; false if it isn't that.
bool decode_base64(std::string_view text, std::string& out);

}  // namespace quire
