#pragma once
// The emulated device: blocks of threads, each thread a fiber of the caller's. One launch at a time; a launch returns
// when all its blocks are done.
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Index3 grid, block;
  unsigned cluster = 1;     // neighbouring blocks that run side by side
  size_t shared_bytes = 0;  // dynamic shared memory
  const void* kernel = nullptr;
  void (*run)(const void* arguments) = nullptr;  // as one thread
  const void* arguments = nullptr;
};

constexpr size_t kMostSharedBytes = 227 * 1024;  // dynamic, of a block
constexpr unsigned kMostThreads = 1024;          // of a block
constexpr int kMultiprocessors = 16;
constexpr int kBlocksPerMultiprocessor = 6;  // that are there at once and may wait for each other

// Empty, or what is wrong: the fault ends the launch, and is printed.
std::string run_launch(const Launch& launch);

// What a thread asks the device for. Constant for the thread, so that the compiler asks once.
[[gnu::const]] Index3 thread_index();
[[gnu::const]] Index3 block_index();
[[gnu::const]] Index3 block_size();
[[gnu::const]] Index3 grid_size();

// Where lanes meet, the compiler may not move calls into or out of branches, or make one of two.
#define EMULATOR_MEETING __attribute__((convergent, nomerge))

// Barrier of all threads of the block. Returns how many came with a predicate.
EMULATOR_MEETING int block_barrier(bool predicate);
// The same of all threads of the cluster, in two halves.
EMULATOR_MEETING void cluster_arrive();
EMULATOR_MEETING void cluster_wait();
// What an address of the running block's shared memory holds in the block of that rank.
float float_of_cluster(const float* address, unsigned rank);
// Lets other threads run: in a loop that waits for them.
void pause();

// Ends the launch with this fault; `place`: an address in the code of the thread. Does not return.
[[noreturn]] void fault(const std::string& what, const void* place);
// function, file and line of an address in the code.
std::string name_of_place(const void* place);
// "thread 5 (wave 0, lane 5) of block (0, 0, 0)"; thread: in its cluster.
std::string name_of_thread(unsigned thread);

// How accesses are ordered. Each wave has an epoch, which grows with every point that orders its lanes; an access is
// ordered before a wave's further ones if it has an epoch below the one that the wave knows of the access's wave.
constexpr unsigned kMostWaves = 64;  // of a cluster
struct Clock {
  uint32_t epochs[kMostWaves];
  void join(const Clock& other) {
    for (unsigned w = 0; w < kMostWaves; ++w) epochs[w] = epochs[w] < other.epochs[w] ? other.epochs[w] : epochs[w];
  }
};

// The running thread as the records of accesses want it; null outside of launches.
struct Running {
  Clock* clock = nullptr;
  uint16_t thread = 0;        // in its cluster
  uint8_t wave = 0;           // in its cluster
  bool active = false;        // device code runs
  int32_t accesses_left = 0;  // until others get a turn
};
extern Running running;
// Called when accesses_left is used up.
void end_turn();
// The rank of the running block in its cluster.
unsigned rank_in_cluster();

// A fault if there is no memory at [address, address + bytes).
void check_memory(const void* address, size_t bytes, const void* place);

// Barriers in shared memory with phases (mbarrier). address: of the 8 bytes.
void phase_barrier_init(uint64_t* barrier, uint32_t count);
void phase_barrier_arrive(uint64_t* barrier);
void phase_barrier_wait(uint64_t* barrier, uint32_t parity);

// Copies that run behind the thread's back: a copy becomes visible at the wait that covers it, and may not be looked
// at before.
void copy_async(void* to, const void* from, int bytes);  // 16 bytes, the ones from `bytes` on become 0
void commit_copies();
void wait_for_copies(int newer);  // all but so many of the newest groups

}  // namespace emulator
