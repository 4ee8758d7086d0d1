#pragma once
// What one rendering may use, and the owner of everything that it allocates.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire::jinja {

// The template cannot be parsed or rendered; whoever knows the line adds it.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string& reason);

class Arena;

// Reference counted within one rendering, hence by one thread.
class HeapObject {
 public:
  HeapObject() = default;
  HeapObject(const HeapObject&) = delete;
  HeapObject& operator=(const HeapObject&) = delete;
  virtual ~HeapObject() = default;

  // Drops every reference to other objects; ends cycles when the rendering is over.
  virtual void clear() {}

  Arena& arena() const { return *arena_; }
  inline void charge(size_t bytes);
  void retain() { ++references_; }
  bool is_shared() const { return references_ > 1; }
  inline void release();

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  HeapObject* previous_ = nullptr;
  HeapObject* next_ = nullptr;
  size_t bytes_ = 0;
  uint32_t references_ = 0;
};

class Arena {
 public:
  static constexpr int64_t kMaxSteps = 1'000'000;
  static constexpr size_t kBytesPerStep = 64;         // copying this much text, or a search in it, costs a step
  static constexpr size_t kScannedBytesPerStep = 16;  // the same where each character is looked at
  static constexpr size_t kMaxBytes = 48u << 20;      // of live values
  static constexpr size_t kMaxText = 16u << 20;       // of one string, and of all output together

  explicit Arena(int64_t max_steps = kMaxSteps) : max_steps_(max_steps) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Throws Failure past the limit.
  void step(int64_t count = 1) {
    if ((steps_ += count) > max_steps_) fail_steps();
  }
  void work(size_t bytes) { step(static_cast<int64_t>(bytes / kBytesPerStep)); }
  void scan(size_t bytes) { step(static_cast<int64_t>(bytes / kScannedBytesPerStep)); }

  // Throws Failure if that much more does not fit; for use before a large allocation.
  void check_room(size_t bytes) const {
    if (bytes > kMaxBytes - live_bytes_) fail_memory();
  }

  // The new object has no reference yet: the caller hands it to a Value or a Ref.
  template <class T, class... Args>
  T* make(Args&&... args) {
    T* object = new T(std::forward<Args>(args)...);
    adopt(object);
    object->charge(sizeof(T));
    return object;
  }

 private:
  friend class HeapObject;
  void adopt(HeapObject* object);
  void unlink(HeapObject* object);
  void destroy(HeapObject* object);
  [[noreturn]] void fail_steps() const;
  [[noreturn]] static void fail_memory();

  const int64_t max_steps_;
  int64_t steps_ = 0;
  size_t live_bytes_ = 0;
  HeapObject* live_ = nullptr;
  HeapObject* dead_ = nullptr;  // waiting for destruction, so that deep structures need no deep stack
  bool destroying_ = false;
};

inline void HeapObject::charge(size_t bytes) {
  arena_->check_room(bytes);
  arena_->live_bytes_ += bytes;
  bytes_ += bytes;
}

inline void HeapObject::release() {
  if (--references_ == 0) arena_->destroy(this);
}

// A counted pointer to a heap object.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace quire::jinja
