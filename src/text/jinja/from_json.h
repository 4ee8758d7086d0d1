#pragma once
#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value.h"

namespace quire::jinja {

inline constexpr int kMaxInputDepth = 64;

// The value of JSON whose strings it looks at: json must outlive it. Throws Failure past kMaxInputDepth.
Value from_json(Arena& arena, const nlohmann::ordered_json& json, int depth = 0);

}  // namespace quire::jinja
