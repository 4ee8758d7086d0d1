#pragma once
// Counts nested evaluations, so that no template overflows the stack.
#include "text/jinja/interpreter.h"

namespace quire::jinja {

class Interpreter::Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    if (++depth_ > kMaxEvaluationDepth) fail("the template is nested too deep");
  }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --depth_; }

 private:
  int& depth_;
};

}  // namespace quire::jinja
