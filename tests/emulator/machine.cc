#include "emulator/machine.h"

#include <sanitizer/common_interface_defs.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "emulator/fiber.h"
#include "emulator/shared_memory.h"
#include "emulator/wave.h"

namespace emulator {

Running running;

namespace {

constexpr int32_t kTurn = 1 << 14;  // accesses to memory before others get a turn
constexpr int kMostIdleRounds = 4000;

enum class State : uint8_t { kReady, kAtCollective, kAtBlockBarrier, kAtClusterBarrier, kAtPhaseBarrier, kDone };

struct Block;

struct Copy {
  void* to;
  const void* from;
  int bytes;
  const void* place;
};

struct Thread {
  Fiber fiber;
  Block* block = nullptr;
  Index3 index;
  int linear = 0, wave = 0, lane = 0;
  State state = State::kReady;
  const void* place = nullptr;  // where it waits
  bool in_cluster_barrier = false;
  unsigned cluster_phase = 0;  // that it has arrived for
  std::vector<Copy> copies;
  std::vector<size_t> groups;  // copies in each committed group, oldest first
  size_t uncommitted = 0;
};

struct Wave {
  uint64_t lanes = 0, ready = 0, paused = 0, done = 0;
  Clock clock{};
  uint64_t at_block_barrier = 0;
  // The collective at hand: the lanes that have come.
  uint64_t came = 0;
  internal::Compute compute = nullptr;
  const void* place = nullptr;
  int cluster_arrivals = 0;
  alignas(64) std::byte in[kWave * 256], out[kWave * 256];
};

struct PhaseBarrier {
  uint32_t count = 0, arrived = 0, phase = 0;
  Clock arriving{}, ended{};
};

struct Block {
  Index3 index;
  unsigned rank = 0, threads = 0;
  std::unique_ptr<Thread[]> members;
  std::unique_ptr<Wave[]> waves;
  unsigned room = 0;  // waves that both have
  unsigned wave_count = 0, current_wave = 0;
  unsigned done = 0;
  // The barrier of the block.
  unsigned waiting = 0;
  int predicates = 0, result = 0;
  const void* barrier_place = nullptr;
  std::map<const uint64_t*, PhaseBarrier> phase_barriers;
  SharedImage shared;
};

struct ClusterBarrier {
  unsigned arrived = 0, phase = 0;
  Clock arriving{}, ended{};
};

enum class Leave : uint8_t { kStalled, kFinished, kFault };

struct Machine {
  std::mutex mutex;
  Fiber main;
  const Launch* launch = nullptr;
  Thread* thread = nullptr;  // that runs
  Leave leave = Leave::kStalled;
  std::string fault;
  uint64_t events = 0;  // grows whenever something but waiting happens
  uint32_t next_epoch = 1;
  std::vector<std::unique_ptr<Block>> pool;
  std::vector<std::unique_ptr<Block>> active;
  ClusterBarrier cluster;
  std::set<std::pair<const void*, const void*>> same_places;
};

Machine& machine() {
  static auto* const made = new Machine;
  return *made;
}

Wave& wave_of(const Thread& thread) { return thread.block->waves[static_cast<size_t>(thread.wave)]; }
uint64_t bit(int lane) { return uint64_t{1} << lane; }

std::string text_of(const Index3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}
std::string name_of(const Thread& thread) {
  return "thread " + std::to_string(thread.linear) + " (wave " + std::to_string(thread.wave) + ", lane " +
         std::to_string(thread.lane) + ")";
}

// The thread becomes the one that runs.
void become(Thread& thread) {
  Machine& m = machine();
  m.thread = &thread;
  const auto first_wave = static_cast<size_t>(thread.block->rank) * thread.block->wave_count;
  running.clock = &wave_of(thread).clock;
  running.thread =
      static_cast<uint16_t>(thread.block->rank * thread.block->threads + static_cast<unsigned>(thread.linear));
  running.wave = static_cast<uint8_t>(first_wave + static_cast<size_t>(thread.wave));
  running.active = true;
  running.accesses_left = kTurn;
}

Thread* pick(Block& block) {
  for (unsigned i = 0; i < block.wave_count; ++i) {
    unsigned w = block.current_wave + i;
    if (w >= block.wave_count) w -= block.wave_count;
    Wave& wave = block.waves[w];
    if (wave.ready == 0) continue;
    block.current_wave = w;
    const int lane = __builtin_ctzll(wave.ready);
    return &block.members[w * kWave + static_cast<unsigned>(lane)];
  }
  return nullptr;
}

// Whether a paused thread is there to go on.
bool wake_paused(Block& block) {
  bool any = false;
  for (unsigned w = 0; w < block.wave_count; ++w) {
    Wave& wave = block.waves[w];
    any |= wave.paused != 0 || wave.ready != 0;
    wave.ready |= wave.paused;
    wave.paused = 0;
  }
  return any;
}

void to_main(Leave leave) {
  Machine& m = machine();
  Thread& self = *m.thread;
  m.leave = leave;
  running.active = false;
  Fiber::switch_to(self.fiber, m.main);
  become(self);
}

// The running thread can't go on, or doesn't want to: others do, until it is ready and picked.
void give_way() {
  Machine& m = machine();
  Thread& self = *m.thread;
  Thread* const next = pick(*self.block);
  if (next == &self) {
    running.accesses_left = kTurn;
    return;
  }
  if (next == nullptr) {
    to_main(Leave::kStalled);
    return;
  }
  become(*next);
  Fiber::switch_to(self.fiber, next->fiber);
  become(self);
}

void wait_as(Thread& self, State state, const void* place) {
  self.state = state;
  self.place = place;
  wave_of(self).ready &= ~bit(self.lane);
  while (self.state != State::kReady) give_way();
}

void wake(Thread& thread) {
  thread.state = State::kReady;
  wave_of(thread).ready |= bit(thread.lane);
}

const char* doing(State state) {
  switch (state) {
    case State::kAtCollective:
      return "waits for its wave at ";
    case State::kAtBlockBarrier:
      return "waits for its block at ";
    case State::kAtClusterBarrier:
      return "waits for its cluster at ";
    case State::kAtPhaseBarrier:
      return "waits for the phase of a barrier at ";
    case State::kDone:
      return "has returned";
    default:
      return "runs";
  }
}
std::string whereabouts(const Thread& thread) {
  std::string text = name_of(thread) + " " + doing(thread.state);
  if (thread.state != State::kDone && thread.state != State::kReady) text += name_of_place(thread.place);
  return text;
}

// Whether two addresses are of one place in the source: the compiler may have made several of it.
bool same_place(const void* a, const void* b) {
  if (a == b) return true;
  Machine& m = machine();
  if (m.same_places.contains({a, b})) return true;
  if (name_of_place(a) != name_of_place(b)) return false;
  m.same_places.insert({a, b});
  return true;
}

// Epochs begin anew: what the wave's lanes did is ordered before what they do.
void order_lanes(Wave& wave, unsigned index) { ++wave.clock.epochs[index]; }
unsigned index_of(const Block& block, unsigned wave) { return block.rank * block.wave_count + wave; }

void finish_thread() {
  Machine& m = machine();
  Thread& self = *m.thread;
  Block& block = *self.block;
  Wave& wave = wave_of(self);
  ++m.events;
  self.state = State::kDone;
  wave.ready &= ~bit(self.lane);
  wave.done |= bit(self.lane);
  if (wave.came != 0) {
    const Thread& other = block.members[static_cast<size_t>(self.wave * kWave + __builtin_ctzll(wave.came))];
    fault("divergent wave: " + name_of(self) + " returns while " + whereabouts(other), nullptr);
  }
  if (block.waiting != 0) {
    for (unsigned t = 0; t < block.threads; ++t) {
      const Thread& other = block.members[t];
      if (other.state == State::kAtBlockBarrier) {
        fault("divergent barrier: " + name_of(self) + " returns while " + whereabouts(other), nullptr);
      }
    }
  }
  if (++block.done == block.threads) {
    to_main(Leave::kFinished);
  } else if (Thread* const next = pick(block); next != nullptr) {
    become(*next);
    Fiber::switch_to(self.fiber, next->fiber);
  } else {
    to_main(Leave::kStalled);
  }
  __builtin_unreachable();
}

void thread_main() {
  Fiber::arrived();
  Machine& m = machine();
  become(*m.thread);
  m.launch->run(m.launch->arguments);
  finish_thread();
}

Index3 unflatten(uint64_t i, const Index3& size) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / size.x / size.y)};
}

void start_block(uint64_t number, unsigned rank, uint32_t base) {
  Machine& m = machine();
  const Launch& launch = *m.launch;
  if (m.pool.empty()) m.pool.push_back(std::make_unique<Block>());
  std::unique_ptr<Block> block = std::move(m.pool.back());
  m.pool.pop_back();
  block->index = unflatten(number, launch.grid);
  block->rank = rank;
  block->threads = launch.block.x * launch.block.y * launch.block.z;
  block->wave_count = (block->threads + kWave - 1) / kWave;
  block->current_wave = block->done = block->waiting = 0;
  block->predicates = 0;
  block->phase_barriers.clear();
  if (block->room < block->wave_count) {
    block->room = block->wave_count;
    block->members = std::make_unique<Thread[]>(size_t{block->room} * kWave);
    block->waves = std::make_unique<Wave[]>(block->room);
  }
  for (unsigned w = 0; w < block->wave_count; ++w) {
    Wave& wave = block->waves[w];
    const unsigned lanes = std::min<unsigned>(kWave, block->threads - w * kWave);
    wave.lanes = wave.ready = lanes == 64 ? ~uint64_t{0} : bit(static_cast<int>(lanes)) - 1;
    wave.paused = wave.done = wave.came = wave.at_block_barrier = 0;
    wave.cluster_arrivals = 0;
    for (uint32_t& epoch : wave.clock.epochs) epoch = base;
  }
  for (unsigned t = 0; t < block->threads; ++t) {
    Thread& thread = block->members[t];
    thread.block = block.get();
    thread.index = unflatten(t, launch.block);
    thread.linear = static_cast<int>(t);
    thread.wave = static_cast<int>(t) / kWave;
    thread.lane = static_cast<int>(t) % kWave;
    thread.state = State::kReady;
    thread.in_cluster_barrier = false;
    thread.copies.clear();
    thread.groups.clear();
    thread.uncommitted = 0;
    thread.fiber.start(thread_main);
  }
  block->shared.begin(launch.shared_bytes, base);
  m.active.push_back(std::move(block));
}

// Runs threads of the block until none can go on.
Leave run_block(Block& block) {
  Machine& m = machine();
  Thread* const next = pick(block);
  block.shared.enter();
  become(*next);
  Fiber::switch_to(m.main, next->fiber);
  running.active = false;
  return m.leave;
}

std::string what_all_wait_for() {
  std::string text = "no thread can go on:";
  int named = 0;
  for (const auto& block : machine().active) {
    for (unsigned t = 0; t < block->threads && named < 4; ++t) {
      const Thread& thread = block->members[t];
      if (thread.state == State::kDone || (t > 0 && thread.state == block->members[t - 1].state)) continue;
      text += (named++ == 0 ? " " : "; ") + ("block " + text_of(block->index) + ": ") + whereabouts(thread);
    }
  }
  return text;
}

void run_blocks() {
  Machine& m = machine();
  const Launch& launch = *m.launch;
  const uint64_t total = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const size_t most =
      std::max<size_t>(launch.cluster, launch.cluster > 1 ? 1 : kMultiprocessors * kBlocksPerMultiprocessor);
  uint64_t next = 0;
  int idle = 0;
  const auto start = [&] {
    const uint32_t base = m.next_epoch;
    m.cluster = {};
    for (unsigned rank = 0; rank < launch.cluster; ++rank) start_block(next++, rank, base);
  };
  while (true) {
    if (m.active.empty()) {
      if (next == total) return;
      start();
    }
    const uint64_t events = m.events;
    bool any = false;
    for (size_t i = 0; i < m.active.size();) {
      Block& block = *m.active[i];
      if (!wake_paused(block)) {
        ++i;
        continue;
      }
      any = true;
      const Leave leave = run_block(block);
      if (leave == Leave::kFault) return;
      if (leave == Leave::kStalled) {
        ++i;
        continue;
      }
      for (unsigned w = 0; w < block.wave_count; ++w) {
        m.next_epoch = std::max(m.next_epoch, block.waves[w].clock.epochs[index_of(block, w)] + 1);
      }
      block.shared.leave();
      m.pool.push_back(std::move(m.active[i]));
      m.active.erase(m.active.begin() + static_cast<ptrdiff_t>(i));
    }
    if (m.events != events) {
      idle = 0;
      continue;
    }
    if (next < total && m.active.size() + launch.cluster <= most) {
      start();
    } else if (!any || ++idle > kMostIdleRounds) {
      m.fault = any ? "threads wait for what no other one does: " + what_all_wait_for() : what_all_wait_for();
      return;
    }
  }
}

}  // namespace

std::string run_launch(const Launch& launch) {
  Machine& m = machine();
  const std::scoped_lock lock(m.mutex);
  const uint64_t threads = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  if (threads == 0 || threads > kMostThreads || blocks == 0 || launch.grid.y > 65535 || launch.grid.z > 65535) {
    return "a launch of " + text_of(launch.grid) + " blocks of " + text_of(launch.block) + " threads";
  }
  if (launch.shared_bytes > kMostSharedBytes) {
    return "a launch with " + std::to_string(launch.shared_bytes) + " bytes of shared memory, the most is " +
           std::to_string(kMostSharedBytes);
  }
  if (blocks % launch.cluster != 0 || (threads + kWave - 1) / kWave * launch.cluster > kMostWaves) {
    return "a launch of clusters of " + std::to_string(launch.cluster) + " blocks";
  }
  m.launch = &launch;
  m.fault.clear();
  run_blocks();
  for (auto& block : m.active) {
    for (unsigned t = 0; t < block->threads; ++t) block->members[t].fiber.abandon();
    for (unsigned w = 0; w < block->wave_count; ++w) {
      m.next_epoch = std::max(m.next_epoch, block->waves[w].clock.epochs[index_of(*block, w)] + 1);
    }
    block->shared.leave();
    m.pool.push_back(std::move(block));
  }
  m.active.clear();
  m.launch = nullptr;
  m.thread = nullptr;
  return std::move(m.fault);
}

Index3 thread_index() { return machine().thread->index; }
Index3 block_index() { return machine().thread->block->index; }
Index3 block_size() { return machine().launch->block; }
Index3 grid_size() { return machine().launch->grid; }
unsigned rank_in_cluster() { return machine().thread->block->rank; }
int lane() { return machine().thread->lane; }

SharedImage* shared_image() {
  const Machine& m = machine();
  return m.thread == nullptr ? nullptr : &m.thread->block->shared;
}

std::string name_of_place(const void* place) {
  if (place == nullptr) return "an unknown place";
  char frames[4096];
  __sanitizer_symbolize_pc(const_cast<void*>(place), "%s:%l (%f)", frames, sizeof frames);
  frames[sizeof frames - 2] = frames[sizeof frames - 1] = 0;
  std::string text;
  int named = 0;
  for (const char* frame = frames; *frame != 0 && named < 4; frame += std::strlen(frame) + 1) {
    // What the emulator itself does there is of no interest.
    if (std::strstr(frame, "/tests/emulator/include/") != nullptr ||
        std::strstr(frame, "/emulator/wave.h") != nullptr) {
      continue;
    }
    std::string one = frame;
    for (const std::string_view folder : {"/src/", "/tests/"}) {
      if (const size_t at = one.find(folder); at != std::string::npos) {
        one = one.substr(at + 1);
        break;
      }
    }
    text += (named++ == 0 ? "" : " in ") + one;
  }
  return text.empty() ? frames : text;
}

std::string name_of_thread(unsigned number) {
  const Machine& m = machine();
  const Block& own = *m.thread->block;
  for (const auto& block : m.active) {
    if (block->rank != number / own.threads || (m.launch->cluster == 1 && block.get() != &own)) continue;
    return name_of(block->members[number % own.threads]) + " of block " + text_of(block->index);
  }
  return "thread " + std::to_string(number);
}

void fault(const std::string& what, const void* place) {
  Machine& m = machine();
  std::string text = what;
  if (m.thread != nullptr) {
    char kernel[512] = "";
    __sanitizer_symbolize_pc(static_cast<char*>(const_cast<void*>(m.launch->kernel)) + 1, "%f", kernel, sizeof kernel);
    kernel[sizeof kernel - 1] = 0;
    text += "; " + name_of(*m.thread) + " of block " + text_of(m.thread->block->index);
    if (place != nullptr) text += " at " + name_of_place(place);
    text += ", kernel " + std::string(kernel);
  }
  std::fprintf(stderr, "emulator: %s\n", text.c_str());
  if (m.thread == nullptr || !running.active) std::abort();
  m.fault = text;
  to_main(Leave::kFault);
  std::abort();
}

void pause() {
  // Most loops that look again and again don't wait: others get a turn now and then.
  constexpr unsigned kLooks = 256;
  static unsigned looks = 0;
  if (++looks % kLooks == 0) end_turn();
}

void end_turn() {
  if (!running.active) return;
  Thread& self = *machine().thread;
  Wave& wave = wave_of(self);
  wave.ready &= ~bit(self.lane);
  wave.paused |= bit(self.lane);
  give_way();
}

namespace internal {

static void meet_at(const void* place, const void* mine, size_t in_bytes, void* result, size_t out_bytes,
                    Compute compute, const void* context) {
  Machine& m = machine();
  Thread& self = *m.thread;
  Block& block = *self.block;
  Wave& wave = wave_of(self);
  const auto other_in = [&](uint64_t lanes) -> const Thread& {
    return block.members[static_cast<size_t>(self.wave * kWave + __builtin_ctzll(lanes))];
  };
  if (wave.came == 0) {
    wave.compute = compute;
    wave.place = place;
  } else if (wave.compute != compute || !same_place(wave.place, place)) {
    fault("divergent wave: " + whereabouts(other_in(wave.came)), place);
  }
  if (const uint64_t away = wave.done | wave.at_block_barrier; away != 0) {
    fault("divergent wave: " + whereabouts(other_in(away)), place);
  }
  if (in_bytes > 256 || out_bytes > 256) fault("more than 256 bytes a lane", place);
  const auto lane = static_cast<size_t>(self.lane);
  std::memcpy(wave.in + lane * in_bytes, mine, in_bytes);
  wave.came |= bit(self.lane);
  if (wave.came == wave.lanes) {
    for (int l = 0; l < kWave; ++l) {
      if ((wave.lanes & bit(l)) == 0) std::memset(wave.in + static_cast<size_t>(l) * in_bytes, 0, in_bytes);
    }
    std::memset(wave.out, 0, kWave * out_bytes);
    running.accesses_left = INT32_MAX;
    compute(context, wave.in, wave.out);
    running.accesses_left = kTurn;
    ++m.events;
    for (uint64_t others = wave.came & ~bit(self.lane); others != 0; others &= others - 1) {
      block.members[static_cast<size_t>(self.wave * kWave + __builtin_ctzll(others))].state = State::kReady;
    }
    wave.ready |= wave.came;
    wave.came = 0;
  } else {
    wait_as(self, State::kAtCollective, place);
  }
  std::memcpy(result, wave.out + lane * out_bytes, out_bytes);
}

void meet(const void* mine, size_t in_bytes, void* result, size_t out_bytes, Compute compute, const void* context) {
  meet_at(__builtin_return_address(0), mine, in_bytes, result, out_bytes, compute, context);
}

}  // namespace internal

void wave_barrier() {
  char mine = 0, result = 0;
  internal::meet_at(
      __builtin_return_address(0), &mine, 1, &result, 1,
      [](const void*, const std::byte*, std::byte*) {
        const Thread& self = *machine().thread;
        order_lanes(wave_of(self), running.wave);
      },
      nullptr);
}

int block_barrier(bool predicate) {
  const void* const place = __builtin_return_address(0);
  Machine& m = machine();
  Thread& self = *m.thread;
  Block& block = *self.block;
  Wave& wave = wave_of(self);
  const auto first_in = [&](State state) -> const Thread& {
    unsigned t = 0;
    while (block.members[t].state != state) ++t;
    return block.members[t];
  };
  if (block.done != 0) fault("divergent barrier: " + whereabouts(first_in(State::kDone)), place);
  if (block.waiting == 0) {
    block.barrier_place = place;
  } else if (!same_place(block.barrier_place, place)) {
    fault("divergent barrier: " + whereabouts(first_in(State::kAtBlockBarrier)), place);
  }
  if (wave.came != 0) fault("divergent wave: " + whereabouts(first_in(State::kAtCollective)), place);
  block.predicates += predicate ? 1 : 0;
  if (++block.waiting < block.threads) {
    wave.at_block_barrier |= bit(self.lane);
    wait_as(self, State::kAtBlockBarrier, place);
    return block.result;
  }
  block.result = block.predicates;
  block.predicates = 0;
  block.waiting = 0;
  ++m.events;
  Clock all{};
  for (unsigned w = 0; w < block.wave_count; ++w) {
    order_lanes(block.waves[w], index_of(block, w));
    all.join(block.waves[w].clock);
  }
  for (unsigned w = 0; w < block.wave_count; ++w) {
    Wave& other = block.waves[w];
    other.clock = all;
    other.ready = other.lanes;
    other.at_block_barrier = 0;
  }
  for (unsigned t = 0; t < block.threads; ++t) block.members[t].state = State::kReady;
  return block.result;
}

void cluster_arrive() {
  const void* const place = __builtin_return_address(0);
  Machine& m = machine();
  Thread& self = *m.thread;
  Wave& wave = wave_of(self);
  ClusterBarrier& barrier = m.cluster;
  if (self.in_cluster_barrier) fault("a cluster's barrier is arrived at twice", place);
  self.in_cluster_barrier = true;
  self.cluster_phase = barrier.phase;
  if (++wave.cluster_arrivals == __builtin_popcountll(wave.lanes)) {
    wave.cluster_arrivals = 0;
    order_lanes(wave, running.wave);
    barrier.arriving.join(wave.clock);
  }
  ++m.events;
  if (++barrier.arrived < m.launch->cluster * self.block->threads) return;
  barrier.arrived = 0;
  barrier.ended = barrier.arriving;
  barrier.arriving = {};
  ++barrier.phase;
  for (const auto& block : m.active) {
    for (unsigned t = 0; t < block->threads; ++t) {
      if (block->members[t].state == State::kAtClusterBarrier) wake(block->members[t]);
    }
  }
}

void cluster_wait() {
  const void* const place = __builtin_return_address(0);
  const Machine& m = machine();
  Thread& self = *m.thread;
  if (!self.in_cluster_barrier) fault("a cluster's barrier is waited for without an arrival", place);
  while (m.cluster.phase == self.cluster_phase) wait_as(self, State::kAtClusterBarrier, place);
  self.in_cluster_barrier = false;
  wave_of(self).clock.join(m.cluster.ended);
}

float float_of_cluster(const float* address, unsigned rank) {
  const void* const place = __builtin_return_address(0);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (!is_shared(at)) fault("an address outside of shared memory", place);
  for (const auto& block : machine().active) {
    if (block->rank != rank) continue;
    block->shared.access(at, sizeof(float), AccessKind::kRead, place);
    float value;
    std::memcpy(&value, block->shared.bytes_at(at), sizeof value);
    return value;
  }
  fault("block " + std::to_string(rank) + " of the cluster is not there any more", place);
}

void phase_barrier_init(uint64_t* barrier, uint32_t count) {
  PhaseBarrier& made = machine().thread->block->phase_barriers[barrier];
  made = {};
  made.count = count;
}

static PhaseBarrier& phase_barrier(uint64_t* barrier, const void* place) {
  auto& barriers = machine().thread->block->phase_barriers;
  const auto found = barriers.find(barrier);
  if (found == barriers.end()) fault("a barrier with phases that was not made", place);
  return found->second;
}

void phase_barrier_arrive(uint64_t* barrier) {
  Machine& m = machine();
  Thread& self = *m.thread;
  PhaseBarrier& at = phase_barrier(barrier, __builtin_return_address(0));
  at.arriving.join(wave_of(self).clock);
  ++m.events;
  if (++at.arrived < at.count) return;
  at.arrived = 0;
  at.ended = at.arriving;
  at.arriving = {};
  ++at.phase;
  for (unsigned t = 0; t < self.block->threads; ++t) {
    if (self.block->members[t].state == State::kAtPhaseBarrier) wake(self.block->members[t]);
  }
}

void phase_barrier_wait(uint64_t* barrier, uint32_t parity) {
  const void* const place = __builtin_return_address(0);
  Thread& self = *machine().thread;
  const PhaseBarrier& at = phase_barrier(barrier, place);
  while (at.phase % 2 == parity) wait_as(self, State::kAtPhaseBarrier, place);
  wave_of(self).clock.join(at.ended);
}

void copy_async(void* to, const void* from, int bytes) {
  const void* const place = __builtin_return_address(0);
  Thread& self = *machine().thread;
  if (!is_shared(reinterpret_cast<uintptr_t>(to))) fault("a copy to other than shared memory", place);
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    fault("a copy between addresses that are not multiples of 16", place);
  }
  if (bytes < 0 || bytes > 16) fault("a copy of " + std::to_string(bytes) + " bytes of 16", place);
  check_memory(from, static_cast<size_t>(bytes), place);
  self.block->shared.start_copy(reinterpret_cast<uintptr_t>(to), 16, place);
  self.copies.push_back({to, from, bytes, place});
  ++self.uncommitted;
}

void commit_copies() {
  Thread& self = *machine().thread;
  self.groups.push_back(self.uncommitted);
  self.uncommitted = 0;
}

void wait_for_copies(int newer) {
  Thread& self = *machine().thread;
  size_t done = 0, groups = 0;
  for (; self.groups.size() - groups > static_cast<size_t>(newer); ++groups) {
    for (size_t i = 0; i < self.groups[groups]; ++i, ++done) {
      const Copy& copy = self.copies[done];
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      std::memset(static_cast<std::byte*>(copy.to) + copy.bytes, 0, static_cast<size_t>(16 - copy.bytes));
      self.block->shared.finish_copy(reinterpret_cast<uintptr_t>(copy.to), 16, copy.place);
    }
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<ptrdiff_t>(done));
  self.groups.erase(self.groups.begin(), self.groups.begin() + static_cast<ptrdiff_t>(groups));
}

}  // namespace emulator
