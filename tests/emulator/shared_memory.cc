#include "emulator/shared_memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <string>

#include "emulator/machine.h"

// The section of all shared variables (shared_memory.ld).
extern "C" std::byte emulator_shared_begin[], emulator_shared_end[];
extern "C" const char __executable_start[];

namespace emulator {
namespace {

constexpr size_t kPageBytes = 1024;           // of what is kept when blocks take turns
constexpr uint32_t kStaticBit = 0x80000000u;  // in 32-bit addresses

// The dynamic shared memory of the block that runs.
alignas(1024) [[gnu::section("quire.shared"), gnu::used]] std::byte dynamic_memory[kMostSharedBytes];

SharedImage* present = nullptr;  // whose memory is in the section

uintptr_t section_begin() { return reinterpret_cast<uintptr_t>(emulator_shared_begin); }
size_t section_bytes() { return static_cast<size_t>(emulator_shared_end - emulator_shared_begin); }

// Whether `access` happened before what the running thread does now.
bool ordered(const Access& access) { return access.epoch < running.clock->epochs[access.wave]; }

Access access_of(uint8_t bytes, bool atomic, const void* place) {
  Access access;
  access.epoch = running.clock->epochs[running.wave];
  access.place = static_cast<uint32_t>(static_cast<const char*>(place) - __executable_start);
  access.thread = running.thread;
  access.wave = running.wave;
  access.bytes = bytes;
  access.atomic = atomic;
  return access;
}

// Not 0: epochs begin with 1.
uint64_t key_of(uint32_t epoch, uint8_t wave) { return uint64_t{epoch} << 8 | wave; }

const void* place_of(const Access& access) { return __executable_start + access.place; }

std::string name_of_variable(uintptr_t address) {
  const auto dynamic = reinterpret_cast<uintptr_t>(dynamic_memory);
  if (address - dynamic < kMostSharedBytes)
    return "byte " + std::to_string(address - dynamic) + " of dynamic shared memory";
  char name[256] = "";
  void* begin = nullptr;
  size_t size = 0;
  __asan_locate_address(reinterpret_cast<void*>(address), name, sizeof name, &begin, &size);
  return "byte " + std::to_string(address - reinterpret_cast<uintptr_t>(begin)) + " of shared variable " + name;
}

// Functions that copy whole structures, with fields that may have no value yet.
constexpr const char* kCopying[] = {"(store_record)"};
bool copies_whatever_is_there(const Access& access) {
  static auto* const known = new std::map<uint32_t, bool>;
  const auto [found, fresh] = known->try_emplace(access.place);
  if (fresh) {
    const std::string name = name_of_place(place_of(access));
    for (const char* function : kCopying) found->second |= name.find(function) != std::string::npos;
  }
  return found->second;
}

// Redzones between variables are copied too, so this is no memcpy, which AddressSanitizer knows.
void copy_raw(std::byte* to, const std::byte* from, size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Calls fn(word address, mask of bytes) for each word of a run of memory.
template <class Fn>
void for_each_word(uintptr_t address, size_t size, Fn&& fn) {
  while (size > 0) {
    const size_t in_word = address % 4, count = std::min<size_t>(4 - in_word, size);
    fn(address - in_word, static_cast<uint8_t>(((1u << count) - 1) << in_word));
    address += count;
    size -= count;
  }
}

}  // namespace

void* dynamic_shared_memory() { return dynamic_memory; }

uint32_t shared_address_of(const void* shared) {
  const auto at = reinterpret_cast<uintptr_t>(shared);
  if (!is_shared(at)) fault("an address outside of shared memory", __builtin_return_address(0));
  const auto dynamic = reinterpret_cast<uintptr_t>(dynamic_memory);
  if (at - dynamic < kMostSharedBytes) return static_cast<uint32_t>(at - dynamic);
  return static_cast<uint32_t>(at - section_begin()) | kStaticBit;
}

void* at_shared_address(uint32_t address) {
  if ((address & kStaticBit) != 0) return emulator_shared_begin + (address & ~kStaticBit);
  if (address >= kMostSharedBytes) {
    fault("address " + std::to_string(address) + " of shared memory", __builtin_return_address(0));
  }
  return dynamic_memory + address;
}

bool is_shared(uintptr_t address) { return address - section_begin() < section_bytes(); }

SharedImage::SharedImage()
    : words_(static_cast<Word*>(mmap(nullptr, (section_bytes() / 4 + 1) * sizeof(Word), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
      touched_(section_bytes() / kPageBytes + 1) {
  if (words_ == MAP_FAILED) throw std::bad_alloc();
}

SharedImage::~SharedImage() { munmap(words_, (section_bytes() / 4 + 1) * sizeof(Word)); }

void SharedImage::begin(size_t dynamic_bytes, uint32_t base) {
  dynamic_bytes_ = dynamic_bytes;
  base_ = base;
  std::fill(touched_.begin(), touched_.end(), 0);
}

void SharedImage::enter() {
  if (present == this) return;
  if (present != nullptr) {
    SharedImage& other = *present;
    other.saved_.resize(section_bytes());
    for (size_t page = 0; page < other.touched_.size(); ++page) {
      if (other.touched_[page] == 0) continue;
      const size_t at = page * kPageBytes, bytes = std::min(kPageBytes, section_bytes() - at);
      copy_raw(other.saved_.data() + at, emulator_shared_begin + at, bytes);
    }
  }
  present = this;
  for (size_t page = 0; page < touched_.size(); ++page) {
    if (touched_[page] == 0 || saved_.empty()) continue;
    const size_t at = page * kPageBytes, bytes = std::min(kPageBytes, section_bytes() - at);
    copy_raw(emulator_shared_begin + at, saved_.data() + at, bytes);
  }
}

void SharedImage::leave() {
  if (present == this) present = nullptr;
}

const std::byte* SharedImage::bytes_at(uintptr_t address) const {
  if (present == this) return reinterpret_cast<const std::byte*>(address);
  return saved_.data() + (address - section_begin());
}

Word& SharedImage::word_at(uintptr_t address, uint8_t bytes) {
  Word& word = words_[(address - section_begin()) / 4];
  if (word.written_base != base_) {
    word.written_base = base_;
    word.written = word.in_flight = 0;
    word.write.epoch = 0;
    for (Access& read : word.reads) read.epoch = 0;
    word.read_again = 0;
  }
  (void)bytes;
  return word;
}

void SharedImage::check_bounds(uintptr_t address, size_t size, const void* place) const {
  const auto at = address - reinterpret_cast<uintptr_t>(dynamic_memory);
  if (at < kMostSharedBytes && at + size > dynamic_bytes_) {
    fault("overrun of shared memory: " + std::to_string(size) + " bytes at " + std::to_string(at) + " of " +
              std::to_string(dynamic_bytes_) + " dynamic bytes",
          place);
  }
}

void SharedImage::race(const Access& before, bool before_writes, const Access& now, bool now_writes,
                       uintptr_t address) const {
  fault("race on shared memory, " + name_of_variable(address) + ": " + name_of_thread(before.thread) +
            (before_writes ? " wrote" : " read") + " at " + name_of_place(place_of(before)) + ", " +
            name_of_thread(now.thread) + (now_writes ? " writes" : " reads") + " with no barrier between",
        place_of(now));
}

void SharedImage::record_read(Word& word, const Access& now, uintptr_t address) {
  if ((word.written & now.bytes) != now.bytes && !copies_whatever_is_there(now)) {
    fault("read of shared memory that the block has not written: " + name_of_variable(address), place_of(now));
  }
  if ((word.in_flight & now.bytes) != 0) {
    fault("read of shared memory before the copy to it has been waited for: " + name_of_variable(address) +
              ", copied at " + name_of_place(place_of(word.write)),
          place_of(now));
  }
  const Access& write = word.write;
  if (write.thread != now.thread && (write.bytes & now.bytes) != 0 && !ordered(write) &&
      !(write.atomic && now.atomic)) {
    race(write, true, now, false, address);
  }
  Access* free = nullptr;
  for (Access& read : word.reads) {
    if (read.wave == now.wave && read.epoch == now.epoch) {
      read.several |= read.thread != now.thread;
      read.bytes |= now.bytes;
      read.atomic &= now.atomic;
      if (read.several && read.bytes == 0xf && !read.atomic) word.read_again = key_of(read.epoch, read.wave);
      return;
    }
    if (free == nullptr && ordered(read)) free = &read;
  }
  if (free == nullptr) free = &word.reads[now.thread % Word::kReads];
  *free = now;
}

void SharedImage::record_write(Word& word, const Access& now, uintptr_t address) {
  const Access& write = word.write;
  if ((word.in_flight & now.bytes) != 0) {
    fault("write to shared memory before the copy to it has been waited for: " + name_of_variable(address) +
              ", copied at " + name_of_place(place_of(word.write)),
          place_of(now));
  }
  if (write.thread != now.thread && (write.bytes & now.bytes) != 0 && !ordered(write) &&
      !(write.atomic && now.atomic)) {
    race(write, true, now, true, address);
  }
  for (const Access& read : word.reads) {
    if ((read.thread == now.thread && !read.several) || (read.bytes & now.bytes) == 0 || ordered(read)) continue;
    if (!(read.atomic && now.atomic)) race(read, false, now, true, address);
  }
  word.write = now;
  word.written |= now.bytes;
}

bool SharedImage::is_read_again(uintptr_t address, size_t size) const {
  const uint64_t key = key_of(running.clock->epochs[running.wave], running.wave);
  const Word* const words = words_ + (address - section_begin()) / 4;
  if (size == 4) return address % 4 == 0 && words->read_again == key;
  return size == 16 && address % 16 == 0 && words[0].read_again == key && words[1].read_again == key &&
         words[2].read_again == key && words[3].read_again == key;
}

void SharedImage::access(uintptr_t address, size_t size, AccessKind kind, const void* place) {
  check_bounds(address, size, place);
  touched_[(address - section_begin()) / kPageBytes] = 1;
  touched_[(address + size - 1 - section_begin()) / kPageBytes] = 1;
  Access now = access_of(0, kind == AccessKind::kAtomic, place);
  for_each_word(address, size, [&](uintptr_t at, uint8_t bytes) {
    Word& word = word_at(at, bytes);
    now.bytes = bytes;
    if (kind != AccessKind::kWrite) record_read(word, now, at);
    if (kind != AccessKind::kRead) record_write(word, now, at);
  });
}

void SharedImage::start_copy(uintptr_t address, size_t size, const void* place) {
  access(address, size, AccessKind::kWrite, place);
  for_each_word(address, size, [&](uintptr_t at, uint8_t bytes) { word_at(at, bytes).in_flight |= bytes; });
}

void SharedImage::finish_copy(uintptr_t address, size_t size, const void* place) {
  for_each_word(address, size, [&](uintptr_t at, uint8_t bytes) {
    Word& word = word_at(at, bytes);
    word.in_flight &= static_cast<uint8_t>(~bytes);
    word.write = access_of(bytes, false, place);
  });
}

}  // namespace emulator
