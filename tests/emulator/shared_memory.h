#pragma once
// The shared memory of emulated blocks and the record of who accesses it. Static shared variables and the dynamic
// memory lie in one section of the program; blocks that run side by side take turns in it.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator {

// The dynamic shared memory of the running block.
void* dynamic_shared_memory();
// Addresses in shared memory as kernels that speak of them in 32 bits see them, and back.
uint32_t shared_address_of(const void* shared);
void* at_shared_address(uint32_t address);

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

// One access to a word (4 bytes) of shared memory; `bytes`: of the word, a bit each.
struct Access {
  uint32_t epoch = 0;  // of the thread's wave
  uint32_t place = 0;  // in the code, from the program's begin on
  uint16_t thread = 0;
  uint8_t wave = 0;
  uint8_t bytes = 0;
  bool atomic = false, several = false;  // several: lanes of the wave
};

struct Word {
  static constexpr int kReads = 3;  // kept: of different waves, or of epochs that are not ordered
  // Of reads[...] that several lanes of a wave have made, all 4 bytes: its epoch and wave. What lanes of the wave read
  // again in the epoch changes nothing: a write in between would have been a fault.
  uint64_t read_again = 0;
  Access write;
  Access reads[kReads];
  uint32_t written_base = 0;  // the block's whose writes `written` is about
  uint8_t written = 0;        // bytes that were written
  uint8_t in_flight = 0;      // bytes that a copy may write at any time
};

// What belongs to one block: its contents while another block is in the section, and the records of its words.
class SharedImage {
 public:
  SharedImage();
  ~SharedImage();
  SharedImage(const SharedImage&) = delete;
  SharedImage& operator=(const SharedImage&) = delete;

  // For a block that begins; epochs from `base` on are its own.
  void begin(size_t dynamic_bytes, uint32_t base);
  // Puts the block's memory in the section; what another block has there is kept for it.
  void enter();
  void leave();

  // Whether a read of 4 or 16 bytes at a multiple of as many has been recorded for the running thread's wave.
  bool is_read_again(uintptr_t address, size_t size) const;
  // Checks an access by the running thread to the image's memory and records it.
  void access(uintptr_t address, size_t size, AccessKind kind, const void* place);
  // The bytes are written by a copy that has been started, until the copy is done.
  void start_copy(uintptr_t address, size_t size, const void* place);
  void finish_copy(uintptr_t address, size_t size, const void* place);
  // Where `address` of the section is, of this block.
  const std::byte* bytes_at(uintptr_t address) const;

 private:
  Word& word_at(uintptr_t address, uint8_t bytes);
  void check_bounds(uintptr_t address, size_t size, const void* place) const;
  void record_read(Word& word, const Access& access, uintptr_t address);
  void record_write(Word& word, const Access& access, uintptr_t address);
  [[noreturn]] void race(const Access& before, bool before_writes, const Access& now, bool now_writes,
                         uintptr_t address) const;

  Word* words_;
  std::vector<std::byte> saved_;
  std::vector<uint8_t> touched_;  // pages of the section
  size_t dynamic_bytes_ = 0;
  uint32_t base_ = 0;
};

bool is_shared(uintptr_t address);
// Of the running block; null outside of launches.
SharedImage* shared_image();

}  // namespace emulator
