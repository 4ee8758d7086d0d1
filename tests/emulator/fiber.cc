#include "emulator/fiber.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

// Saves what a function must keep on the stack, and goes on with another stack.
extern "C" void emulator_switch_stack(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch_stack, . - emulator_switch_stack
)");
constexpr size_t kSavedWords = 6;
#else
#error "the emulator's fibers are written for x86-64"
#endif

namespace emulator {
namespace {

constexpr size_t kStackBytes = 128 * 1024, kGuardBytes = 4096;

// The fiber that was left last, until the next one has arrived.
Fiber* left = nullptr;

}  // namespace

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes);
}

void Fiber::start(void (*entry)()) {
  if (stack_ == nullptr) {
    void* const memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuardBytes, PROT_NONE);
    stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
    bottom_ = stack_;
    size_ = kStackBytes;
  }
  auto** top = reinterpret_cast<void**>(stack_ + kStackBytes);
  *--top = nullptr;  // where entry() would return to
  *--top = reinterpret_cast<void*>(entry);
  for (size_t i = 0; i < kSavedWords; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

void Fiber::abandon() {
  if (stack_ != nullptr) __asan_unpoison_memory_region(stack_, kStackBytes);
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  left = &from;
  __sanitizer_start_switch_fiber(nullptr, to.bottom_, to.size_);
  emulator_switch_stack(&from.stack_pointer_, to.stack_pointer_);
  arrived();
}

void Fiber::arrived() {
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (left->stack_ == nullptr) left->bottom_ = bottom, left->size_ = size;
}

}  // namespace emulator
