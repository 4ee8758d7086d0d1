#pragma once
// A fixed arena of scratch memory: sized once at start, handed out by bumping a pointer, never grown.
#include <cstddef>
#include <cstdint>

namespace quire {

class Workspace {
 public:
  static constexpr size_t kAlignment = 256;
  explicit Workspace(size_t bytes);  // reserves address space; pages are touched on use
  // Hands out memory that belongs to someone else, such as a GPU's.
  Workspace(void* memory, size_t bytes) : base_(static_cast<std::byte*>(memory)), capacity_(bytes) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // n elements, aligned to kAlignment bytes from the start. Asking for more than was sized is our bug:
  // std::logic_error.
  template <class T>
  T* take(size_t n) {
    return static_cast<T*>(take_bytes(n * sizeof(T)));
  }
  size_t mark() const { return used_; }
  void release(size_t mark) { used_ = mark; }
  size_t capacity() const { return capacity_; }

 private:
  void* take_bytes(size_t bytes);
  std::byte* base_ = nullptr;
  bool owns_ = false;
  size_t capacity_ = 0, used_ = 0;
};

// Gives back what is taken from a workspace meanwhile, also where an exception passes by.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), mark_(workspace.mark()) {}
  ~WorkspaceScope() { workspace_.release(mark_); }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace& workspace_;
  const size_t mark_;
};

}  // namespace quire
