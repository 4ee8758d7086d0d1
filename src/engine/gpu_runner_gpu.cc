#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/generation_state.h"
#include "engine/gpu_runner.h"

namespace quire {
namespace {

constexpr int32_t kLargestGraph = 1024;
constexpr int64_t kHostRows = 32;  // rows of logits that come to the host at a time
// What the device samples with at most: the lists of all rows' rules, and log-probabilities of a row on average.
constexpr int64_t kSampleTokens = 1 << 20, kSampleIds = 1 << 18, kSampleBiases = 1 << 16, kTopOfRow = 32;

// Batch sizes that graphs are recorded for: 1, 2, 4, 8, 16, 24 ... 256, 272 ... 512, 576 ... 1024.
int32_t padded_batch(int32_t n) {
  if (n <= 2) return n;
  if (n <= 4) return 4;
  const int32_t step = n <= 256 ? 8 : n <= 512 ? 16 : 64;
  return (n + step - 1) / step * step;
}

size_t staging_bytes(const RunnerOptions& options) {
  const auto seqs = options.max_num_seqs, tokens = options.max_num_batched_tokens;
  constexpr size_t kAlignmentSlack = 1024;
  const int64_t ints = 3 * seqs + 1 + tokens + options.max_logits_rows + options.max_hidden_rows +
                       seqs * options.blocks_per_sequence + kSampleTokens + kSampleIds + 2 * kSampleBiases;
  return static_cast<size_t>(ints) * sizeof(int32_t) + static_cast<size_t>(seqs) * sizeof(gpu::BlockTableDelta) +
         static_cast<size_t>(options.max_logits_rows) * sizeof(gpu::SampleRow) + kAlignmentSlack;
}

int64_t hidden_row_bytes(const Model& model) { return model.config().hidden_size * block_bytes(model.hidden_dtype()); }

size_t result_bytes(const RunnerOptions& options) {
  constexpr size_t kAlignmentSlack = 64;
  return static_cast<size_t>(options.max_logits_rows) *
             (sizeof(gpu::SampleResultRow) + kTopOfRow * (sizeof(int32_t) + sizeof(float))) +
         kAlignmentSlack;
}

}  // namespace

GpuRunner::ResultLayout::ResultLayout(int64_t row_count, int64_t max_logprobs) {
  StagingLayout layout;
  rows = layout.add<gpu::SampleResultRow>(row_count);
  top_ids = layout.add<int32_t>(row_count * max_logprobs);
  top_logprobs = layout.add<float>(row_count * max_logprobs);
  bytes = layout.bytes();
}

size_t GpuRunner::activation_bytes(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                   const RunnerOptions& options) {
  const auto tokens = static_cast<size_t>(options.max_num_batched_tokens);
  const size_t workspace =
      model.workspace_bytes() + backend.workspace_bytes(group, static_cast<int32_t>(options.max_num_seqs),
                                                        static_cast<int32_t>(options.max_num_batched_tokens));
  return workspace + staging_bytes(options) +
         static_cast<size_t>(options.max_num_seqs * options.blocks_per_sequence) * sizeof(int32_t) +
         tokens * (2 * sizeof(int32_t) + sizeof(int64_t)) +
         static_cast<size_t>(options.max_logits_rows) * sizeof(int32_t) + result_bytes(options) +
         static_cast<size_t>(options.max_hidden_rows * hidden_row_bytes(model)) +
         gpu::sample_state_bytes(static_cast<int32_t>(options.max_logits_rows)) +
         gpu::sample_workspace_bytes(static_cast<int32_t>(options.max_logits_rows),
                                     static_cast<int32_t>(model.config().vocab_size));
}

size_t GpuRunner::logits_bytes(const Model& model, const RunnerOptions& options) {
  return static_cast<size_t>(options.max_logits_rows * model.config().vocab_size) * sizeof(float);
}

GpuRunner::GpuRunner(gpu::Context& context, const Model& model, const AttentionBackend& backend,
                     const AttentionGroup& group, const KvCache& kv, BlockTables& tables, ThreadPool& pool,
                     const RunnerOptions& options, const Modes& modes)
    : context_(context),
      model_(model),
      backend_(backend),
      kv_(kv),
      tables_(tables),
      pool_(pool),
      options_(options),
      modes_(modes),
      vocab_size_(model.config().vocab_size),
      hidden_bytes_(hidden_row_bytes(model)),
      block_size_(group.block_size),
      plan_(backend.make_plan(group, static_cast<int32_t>(options.max_num_seqs),
                              static_cast<int32_t>(options.max_num_batched_tokens))),
      staging_(staging_bytes(options)),
      block_tables_(static_cast<size_t>(options.max_num_seqs * tables.stride()) * sizeof(int32_t)),
      token_ids_(static_cast<size_t>(options.max_num_batched_tokens) * sizeof(int32_t)),
      positions_(static_cast<size_t>(options.max_num_batched_tokens) * sizeof(int32_t)),
      slots_(static_cast<size_t>(options.max_num_batched_tokens) * sizeof(int64_t)),
      sampled_tokens_(static_cast<size_t>(options.max_logits_rows) * sizeof(int32_t)),
      logits_(logits_bytes(model, options)),
      workspace_memory_(model.workspace_bytes() +
                        backend.workspace_bytes(group, static_cast<int32_t>(options.max_num_seqs),
                                                static_cast<int32_t>(options.max_num_batched_tokens))),
      results_(result_bytes(options)),
      hidden_(static_cast<size_t>(options.max_hidden_rows * hidden_bytes_)),
      sample_state_(gpu::sample_state_bytes(static_cast<int32_t>(options.max_logits_rows))),
      sample_workspace_(gpu::sample_workspace_bytes(static_cast<int32_t>(options.max_logits_rows),
                                                    static_cast<int32_t>(vocab_size_))),
      workspace_(workspace_memory_.data(), workspace_memory_.bytes()),
      sampler_(vocab_size_, pool),
      host_logits_(static_cast<size_t>(kHostRows * vocab_size_) * sizeof(float)) {
  const auto seqs = static_cast<size_t>(options.max_num_seqs), rows = static_cast<size_t>(options.max_logits_rows);
  for (Flight& flight : flights_) {
    flight.staging = gpu::PinnedMemory(staging_.bytes());
    flight.results = gpu::PinnedMemory(results_.bytes());
    flight.hidden = gpu::PinnedMemory(hidden_.bytes());
    flight.sampled.reserve(seqs);
    flight.rows.reserve(rows);
    flight.pooled.reserve(seqs);
  }
  order_.sequences.reserve(seqs);
  context_.stream.zero(block_tables_.data(), block_tables_.bytes());
  context_.stream.zero(sampled_tokens_.data(), sampled_tokens_.bytes());
  context_.stream.zero(sample_state_.data(), sample_state_.bytes());
}

GpuRunner::~GpuRunner() {
  try {
    context_.stream.wait("end");
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

GpuRunner::Shape GpuRunner::shape_of(const std::vector<ScheduledSequence>& step) {
  Shape shape;
  order_.set(step, kDecodeThreshold);
  for (const ScheduledSequence* scheduled : order_.sequences) {
    const Sequence& sequence = *scheduled->sequence;
    const bool token_wanted = scheduled->sampled && sequence.request->input.pooling == Pooling::kNone;
    shape.logits_rows += static_cast<int32_t>(prompt_logprob_rows(sequence, scheduled->start, scheduled->query_len)) +
                         static_cast<int32_t>(token_wanted);
    shape.hidden_rows += static_cast<int32_t>(pooled_rows(sequence, scheduled->start, scheduled->query_len));
    if (token_wanted) {
      shape.sampling += most_of_row(sequence.request->input.params, static_cast<size_t>(sequence.known()),
                                    sequence.request->stop_ids.size());
    }
    const int32_t fresh = sequence.blocks - tables_.on_device(sequence.table_row);
    if (fresh > 0) ++shape.deltas;
    shape.delta_blocks += fresh;
  }
  shape.decode = order_.decode;
  shape.extend = order_.extend;
  shape.prefill = order_.prefill;
  shape.requests = static_cast<int32_t>(order_.sequences.size());
  shape.tokens = order_.tokens;
  const int32_t padded = std::min(padded_batch(shape.requests), static_cast<int32_t>(options_.max_num_seqs));
  shape.graph = modes_.graphs && backend_.can_capture_decodes() && shape.decode.requests == shape.requests &&
                padded <= kLargestGraph && shape.delta_blocks <= padded && shape.hidden_rows == 0;
  if (shape.graph) {
    shape.requests = shape.tokens = shape.logits_rows = shape.deltas = shape.delta_blocks = padded;
    shape.decode.requests = shape.decode.tokens = padded;
    shape.decode.max_query_len = 1;
    shape.decode.max_kv_len =
        static_cast<int32_t>(std::min<int64_t>(tables_.stride() * block_size_, std::numeric_limits<int32_t>::max()));
  }
  shape.every_row = shape.logits_rows == shape.tokens;
  shape.sampling.rows = static_cast<size_t>(shape.logits_rows);
  shape.host_sampling =
      shape.sampling.tokens > kSampleTokens || shape.sampling.ids > kSampleIds || shape.sampling.biases > kSampleBiases;
  if (shape.host_sampling) shape.sampling = {};
  lay_out(shape);
  return shape;
}

void GpuRunner::lay_out(Shape& shape) const {
  StagingLayout layout;
  shape.query_offsets = layout.add<int32_t>(shape.requests + 1);
  shape.kv_lens = layout.add<int32_t>(shape.requests);
  shape.table_rows = layout.add<int32_t>(shape.requests);
  shape.ids = layout.add<int32_t>(shape.tokens);
  shape.logits = layout.add<int32_t>(shape.every_row ? 0 : shape.logits_rows);
  shape.hidden = layout.add<int32_t>(shape.hidden_rows);
  shape.delta_list = layout.add<gpu::BlockTableDelta>(shape.deltas);
  shape.delta_ids = layout.add<int32_t>(shape.delta_blocks);
  shape.sample_rows = layout.add<gpu::SampleRow>(static_cast<int64_t>(shape.sampling.rows));
  shape.sample_tokens = layout.add<int32_t>(static_cast<int64_t>(shape.sampling.tokens));
  shape.sample_ids = layout.add<int32_t>(static_cast<int64_t>(shape.sampling.ids));
  shape.bias_ids = layout.add<int32_t>(static_cast<int64_t>(shape.sampling.biases));
  shape.bias_values = layout.add<float>(static_cast<int64_t>(shape.sampling.biases));
  shape.bytes = layout.bytes();
}

void GpuRunner::stage(const Shape& shape, Flight& flight) {
  flight.sampled.clear();
  flight.rows.clear();
  flight.pooled.clear();
  auto* query_offsets = staged<int32_t>(flight, shape.query_offsets);
  auto* kv_lens = staged<int32_t>(flight, shape.kv_lens);
  auto* table_rows = staged<int32_t>(flight, shape.table_rows);
  auto* ids = staged<int32_t>(flight, shape.ids);
  auto* logits_rows = staged<int32_t>(flight, shape.logits);
  auto* hidden_rows = staged<int32_t>(flight, shape.hidden);
  auto* deltas = staged<gpu::BlockTableDelta>(flight, shape.delta_list);
  auto* delta_ids = staged<int32_t>(flight, shape.delta_ids);

  int32_t token = 0, delta = 0, delta_block = 0, request = 0;
  const auto want = [&](int32_t row, const LogitsRow& wanted) {
    if (!shape.every_row) logits_rows[flight.rows.size()] = row;
    flight.rows.push_back(wanted);
  };
  for (const ScheduledSequence* scheduled : order_.sequences) {
    Sequence& sequence = *scheduled->sequence;
    query_offsets[request] = token;
    kv_lens[request] = static_cast<int32_t>(scheduled->start + scheduled->query_len);
    table_rows[request] = sequence.table_row;
    ++request;
    int32_t& known_blocks = tables_.on_device(sequence.table_row);
    if (const int32_t fresh = sequence.blocks - known_blocks; fresh > 0) {
      deltas[delta++] = {sequence.table_row, known_blocks, fresh, delta_block};
      std::copy_n(tables_.row(sequence.table_row) + known_blocks, fresh, delta_ids + delta_block);
      delta_block += fresh;
      known_blocks = sequence.blocks;
    }
    const int32_t first = token;
    for (int64_t position = scheduled->start; position < scheduled->start + scheduled->query_len; ++position) {
      ids[token++] =
          position < sequence.known() ? sequence.tokens[static_cast<size_t>(position)] : -1 - sequence.sampled_row;
    }
    const int64_t prompt_rows = prompt_logprob_rows(sequence, scheduled->start, scheduled->query_len);
    for (int64_t i = 0; i < prompt_rows; ++i)
      want(first + static_cast<int32_t>(i), {&sequence, scheduled->start + i + 1, -1});
    if (const int64_t rows = pooled_rows(sequence, scheduled->start, scheduled->query_len); rows > 0) {
      for (int32_t row = token - static_cast<int32_t>(rows); row < token; ++row) *hidden_rows++ = row;
      flight.pooled.push_back({&sequence, scheduled->start + scheduled->query_len - rows, rows});
    }
    if (sequence.request->input.pooling != Pooling::kNone) {
      if (scheduled->sampled) flight.sampled.push_back({&sequence, {}});
    } else if (scheduled->sampled) {
      sequence.sampled_row = static_cast<int32_t>(flight.rows.size());
      want(token - 1, {&sequence, -1, static_cast<int32_t>(flight.sampled.size())});
      flight.sampled.push_back({&sequence, {}});
    } else if (shape.graph && prompt_rows == 0) {
      want(token - 1, {nullptr, -1, -1});
    }
  }
  // Padding: one token each, of no sequence.
  for (; request < shape.requests; ++request) {
    query_offsets[request] = token;
    kv_lens[request] = 0;
    table_rows[request] = 0;
    ids[token++] = 0;
  }
  query_offsets[request] = token;
  for (; delta < shape.deltas; ++delta) deltas[delta] = {0, 0, 0, 0};
}

void GpuRunner::compute(const Shape& shape) {
  gpu::StepInputArgs args;
  args.query_offsets = on_device<int32_t>(shape.query_offsets);
  args.kv_lens = on_device<int32_t>(shape.kv_lens);
  args.block_table_rows = on_device<int32_t>(shape.table_rows);
  args.staged_ids = on_device<int32_t>(shape.ids);
  args.sampled = static_cast<const int32_t*>(sampled_tokens_.data());
  args.deltas = on_device<gpu::BlockTableDelta>(shape.delta_list);
  args.delta_blocks = on_device<int32_t>(shape.delta_ids);
  args.requests = shape.requests;
  args.tokens = shape.tokens;
  args.delta_count = shape.deltas;
  args.block_size = block_size_;
  args.block_table_stride = tables_.stride();
  args.block_tables = static_cast<int32_t*>(block_tables_.data());
  args.token_ids = static_cast<int32_t*>(token_ids_.data());
  args.positions = static_cast<int32_t*>(positions_.data());
  args.slots = static_cast<int64_t*>(slots_.data());
  gpu::prepare_step(args, context_.stream);

  const auto requests = static_cast<size_t>(shape.requests), tokens = static_cast<size_t>(shape.tokens);
  StepInput input;
  input.token_ids = {args.token_ids, tokens};
  input.positions = {args.positions, tokens};
  input.logits_rows = {on_device<int32_t>(shape.logits), static_cast<size_t>(shape.logits_rows)};
  input.hidden_rows = {on_device<int32_t>(shape.hidden), static_cast<size_t>(shape.hidden_rows)};
  input.hidden = hidden_.data();
  AttentionBatch& batch = input.attention;
  batch.query_offsets = {args.query_offsets, requests + 1};
  batch.kv_lens = {args.kv_lens, requests};
  batch.block_tables = args.block_tables;
  batch.block_table_stride = args.block_table_stride;
  batch.block_table_rows = {args.block_table_rows, requests};
  batch.slots = {args.slots, tokens};
  batch.decode = shape.decode;
  batch.extend = shape.extend;
  batch.prefill = shape.prefill;
  backend_.plan(batch, *plan_);
  model_.forward(input, backend_, *plan_, kv_.layers(), static_cast<float*>(logits_.data()), workspace_, pool_);
}

// What each row of logits is for, as the device's sampler has it.
bool GpuRunner::write_sample_rows(const Flight& flight, GpuRowWriter& writer) const {
  static const SamplingParams kGreedy = [] {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }();
  for (const LogitsRow& row : flight.rows) {
    if (row.sequence == nullptr) {
      if (!writer.add({&kGreedy, {}, {}, {}})) return false;
      continue;
    }
    const Sequence& sequence = *row.sequence;
    const EngineRequest& request = *sequence.request;
    if (row.prompt_position >= 0) {
      const int32_t token = sequence.tokens[static_cast<size_t>(row.prompt_position)];
      if (!writer.add_given(token, *request.input.params.prompt_logprobs)) return false;
      continue;
    }
    const SampleInput input{&request.input.params,
                            sequence.prompt(),
                            sequence.output(),
                            request.stop_ids,
                            request.seed,
                            static_cast<uint32_t>(sequence.choice),
                            static_cast<uint32_t>(sequence.pending)};
    if (!writer.add(input)) return false;
  }
  return true;
}

void GpuRunner::stage_sampling(Shape& shape, Flight& flight, gpu::SampleArgs& args) const {
  auto* rows = staged<gpu::SampleRow>(flight, shape.sample_rows);
  GpuRowBuffers buffers;
  buffers.rows = {rows, shape.sampling.rows};
  buffers.tokens = {staged<int32_t>(flight, shape.sample_tokens), shape.sampling.tokens};
  buffers.ids = {staged<int32_t>(flight, shape.sample_ids), shape.sampling.ids};
  buffers.bias_ids = {staged<int32_t>(flight, shape.bias_ids), shape.sampling.biases};
  buffers.bias_values = {staged<float>(flight, shape.bias_values), shape.sampling.biases};
  GpuRowWriter writer(buffers, static_cast<int32_t>(vocab_size_));
  shape.host_sampling |= !write_sample_rows(flight, writer);
  writer.describe(args);
  shape.host_sampling |=
      args.max_logprobs * static_cast<int64_t>(shape.sampling.rows) > kTopOfRow * options_.max_logits_rows;
  if (shape.host_sampling) return;
  std::fill(rows + writer.used().rows, rows + shape.sampling.rows, gpu::SampleRow{});
  args.rows = static_cast<int32_t>(shape.sampling.rows);
  args.logits = static_cast<const float*>(logits_.data());
  args.row_stride = vocab_size_;
  args.params = on_device<gpu::SampleRow>(shape.sample_rows);
  args.tokens = on_device<int32_t>(shape.sample_tokens);
  args.ids = on_device<int32_t>(shape.sample_ids);
  args.bias_ids = on_device<int32_t>(shape.bias_ids);
  args.bias_values = on_device<float>(shape.bias_values);
  args.sampled = static_cast<int32_t*>(sampled_tokens_.data());
  const ResultLayout layout(args.rows, args.max_logprobs);
  auto* results = static_cast<std::byte*>(results_.data());
  args.results = reinterpret_cast<gpu::SampleResultRow*>(results + layout.rows);
  args.top_ids = reinterpret_cast<int32_t*>(results + layout.top_ids);
  args.top_logprobs = reinterpret_cast<float*>(results + layout.top_logprobs);
  flight.parameters = rows;
  flight.max_logprobs = args.max_logprobs;
}

void GpuRunner::sample_on_device(const gpu::SampleArgs& args) {
  gpu::sample_rows(args, sample_state_.data(), sample_workspace_.data(), context_.stream);
}

// The first step of a kind is computed kernel by kernel, which loads what it needs; the second is recorded. Where that
// fails, for want of memory, the kind goes on kernel by kernel. sampling: null if it is not part of the graph.
void GpuRunner::launch_graph(const Shape& shape, const gpu::SampleArgs* sampling) {
  const auto work = [&] {
    compute(shape);
    if (sampling != nullptr) sample_on_device(*sampling);
  };
  GraphKey key{shape.requests, false, false};
  if (sampling != nullptr) key = {shape.requests, sampling->any_greedy, sampling->any_race};
  const auto at = graphs_.find(key);
  if (at == graphs_.end()) {
    work();
    graphs_.try_emplace(key);
    return;
  }
  Recording& recording = at->second;
  if (!recording.graph && !recording.refused) {
    try {
      recording.graph = context_.stream.capture(work);
    } catch (const Error& error) {
      recording.refused = true;
      log_warning(fmt::format("steps of {} sequences run without a graph: {}", shape.requests, error.what()));
    }
  }
  if (recording.refused) return work();
  context_.stream.launch(recording.graph, "decode");
}

void GpuRunner::submit(const std::vector<ScheduledSequence>& step) {
  Flight& flight = flights_[static_cast<size_t>(submitted_ % 2)];
  const WorkspaceScope scope(workspace_);
  Shape shape = shape_of(step);
  stage(shape, flight);
  gpu::SampleArgs sampling;
  if (!shape.host_sampling && shape.logits_rows > 0) stage_sampling(shape, flight, sampling);
  flight.sampled_by_host = shape.host_sampling;
  flight.needs_output = std::any_of(flight.sampled.begin(), flight.sampled.end(), [](const Sampled& one) {
    return needs_output(one.sequence->request->input.params);
  });
  flight.result_rows = sampling.rows;
  try {
    launch(shape, sampling, flight);
  } catch (...) {
    // The next step is staged in the same memory: what was put on the stream has to be done with it.
    context_.stream.wait("failed step");
    throw;
  }
  ++submitted_;
}

void GpuRunner::launch(const Shape& shape, const gpu::SampleArgs& sampling, Flight& flight) {
  gpu::Stream& stream = context_.stream;
  stream.copy_to_device(staging_.data(), flight.staging.data(), shape.bytes, "step input");
  const bool on_device = !shape.host_sampling && shape.logits_rows > 0;
  const bool plain = on_device && !sampling.any_short && !sampling.any_long && !sampling.any_logprobs;
  if (shape.graph) {
    launch_graph(shape, plain ? &sampling : nullptr);
  } else {
    compute(shape);
  }
  if (on_device) {
    if (!shape.graph || !plain) sample_on_device(sampling);
    const ResultLayout layout(sampling.rows, sampling.max_logprobs);
    stream.copy_to_host(flight.results.data(), results_.data(), layout.bytes, "sampled tokens");
  }
  if (shape.hidden_rows > 0) {
    stream.copy_to_host(flight.hidden.data(), hidden_.data(), static_cast<size_t>(shape.hidden_rows * hidden_bytes_),
                        "hidden states");
  }
  stream.record(flight.done);
}

bool GpuRunner::may_run_ahead() const {
  if (submitted_ == 0) return true;
  const Flight& last = flights_[static_cast<size_t>((submitted_ - 1) % 2)];
  return !last.sampled_by_host && !last.needs_output;
}

void GpuRunner::sample_on_host(Flight& flight) {
  auto* host = static_cast<float*>(host_logits_.data());
  const auto rows = std::ssize(flight.rows);
  for (int64_t first = 0; first < rows; first += kHostRows) {
    const int64_t n = std::min(kHostRows, rows - first);
    context_.stream.copy_to_host(host, static_cast<const float*>(logits_.data()) + first * vocab_size_,
                                 static_cast<size_t>(n * vocab_size_) * sizeof(float), "logits");
    context_.stream.wait("logits");
    sampler_.sample(std::span(flight.rows).subspan(static_cast<size_t>(first), static_cast<size_t>(n)), host,
                    flight.sampled);
  }
}

void GpuRunner::take_results(Flight& flight) {
  const ResultLayout layout(flight.result_rows, flight.max_logprobs);
  const auto* base = static_cast<const std::byte*>(flight.results.data());
  const auto* results = reinterpret_cast<const gpu::SampleResultRow*>(base + layout.rows);
  const auto* ids = reinterpret_cast<const int32_t*>(base + layout.top_ids);
  const auto* logprobs = reinterpret_cast<const float*>(base + layout.top_logprobs);
  const auto most = static_cast<size_t>(flight.max_logprobs);
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    const LogitsRow& row = flight.rows[i];
    if (row.sequence == nullptr) continue;
    SampleResult result =
        gpu_sample_result(flight.parameters[i], results[i], {ids + i * most, most}, {logprobs + i * most, most});
    if (row.prompt_position < 0) {
      flight.sampled[static_cast<size_t>(row.result)].result = std::move(result);
    } else {
      row.sequence->request->client->prompt_logprobs_to_fill()[static_cast<size_t>(row.prompt_position)] =
          std::move(result.logprobs);
    }
  }
}

void GpuRunner::pool(const Flight& flight) const {
  const auto* states = static_cast<const std::byte*>(flight.hidden.data());
  for (const HiddenRows& rows : flight.pooled) {
    pool_rows(rows, states, model_.hidden_dtype());
    states += rows.rows * hidden_bytes_;
  }
}

std::vector<Runner::Sampled>& GpuRunner::collect() {
  Flight& flight = flights_[static_cast<size_t>(collected_++ % 2)];
  if (flight.sampled_by_host) {
    sample_on_host(flight);
  } else {
    context_.stream.wait(flight.done, "sampled tokens");
    take_results(flight);
  }
  pool(flight);
  if (modes_.log_transfers) log_counts();
  return flight.sampled;
}

void GpuRunner::forget(const Sequence& sequence) {
  for (Flight& flight : flights_) {
    for (Sampled& one : flight.sampled) {
      if (one.sequence == &sequence) one.sequence = nullptr;
    }
    for (LogitsRow& row : flight.rows) {
      if (row.sequence == &sequence) row.sequence = nullptr;
    }
    for (HiddenRows& rows : flight.pooled) {
      if (rows.sequence == &sequence) rows.sequence = nullptr;
    }
  }
}

void GpuRunner::log_counts() {
  using Kind = gpu::TransferCount::Kind;
  static constexpr std::array kNames = {"to device", "to host", "waits", "graphs", "kernels"};
  std::string line = "transfers of a step:";
  for (const gpu::TransferCount& count : context_.stream.counts()) {
    line += fmt::format(" {} [{}] {}", kNames[static_cast<size_t>(count.kind)], count.name, count.times);
    if (count.kind == Kind::kToDevice || count.kind == Kind::kToHost) line += fmt::format(" ({} bytes)", count.bytes);
    line += ";";
  }
  log_info(line);
  context_.stream.reset_counts();
}

}  // namespace quire
