#include "engine/cpu_runner.h"

namespace quire {

size_t CpuRunner::workspace_bytes(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                  const RunnerOptions& options) {
  return model.workspace_bytes() + backend.workspace_bytes(group, static_cast<int32_t>(options.max_num_seqs),
                                                           static_cast<int32_t>(options.max_num_batched_tokens));
}

size_t CpuRunner::logits_bytes(const Model& model, const RunnerOptions& options) {
  return static_cast<size_t>(options.max_logits_rows * model.config().vocab_size) * sizeof(float);
}

size_t CpuRunner::hidden_bytes(const Model& model, const RunnerOptions& options) {
  return static_cast<size_t>(options.max_hidden_rows * model.config().hidden_size) * sizeof(float);
}

CpuRunner::CpuRunner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                     const KvCache& kv, const BlockTables& tables, ThreadPool& pool, const RunnerOptions& options)
    : model_(model),
      backend_(backend),
      kv_(kv),
      tables_(tables),
      pool_(pool),
      block_size_(group.block_size),
      plan_(backend.make_plan(group, static_cast<int32_t>(options.max_num_seqs),
                              static_cast<int32_t>(options.max_num_batched_tokens))),
      workspace_(workspace_bytes(model, backend, group, options)),
      logits_memory_(logits_bytes(model, options)),
      hidden_memory_(hidden_bytes(model, options)),
      logits_(logits_memory_.take<float>(static_cast<size_t>(options.max_logits_rows * model.config().vocab_size))),
      hidden_(hidden_memory_.take<float>(hidden_bytes(model, options) / sizeof(float))),
      sampler_(model.config().vocab_size, pool) {
  const auto tokens = static_cast<size_t>(options.max_num_batched_tokens),
             seqs = static_cast<size_t>(options.max_num_seqs);
  const auto rows = static_cast<size_t>(options.max_logits_rows);
  order_.sequences.reserve(seqs);
  token_ids_.reserve(tokens);
  positions_.reserve(tokens);
  slots_.reserve(tokens);
  query_offsets_.reserve(seqs + 1);
  kv_lens_.reserve(seqs);
  table_rows_.reserve(seqs);
  logits_rows_.reserve(rows);
  rows_.reserve(rows);
  hidden_rows_.reserve(static_cast<size_t>(options.max_hidden_rows));
  pooled_.reserve(seqs);
  sampled_.reserve(seqs);
}

void CpuRunner::stage_sequence(const ScheduledSequence& scheduled) {
  Sequence& sequence = *scheduled.sequence;
  const int64_t end = scheduled.start + scheduled.query_len;
  const auto first_row = static_cast<int64_t>(token_ids_.size());
  const int32_t* table = tables_.row(sequence.table_row);
  for (int64_t position = scheduled.start; position < end; ++position) {
    token_ids_.push_back(sequence.tokens[static_cast<size_t>(position)]);
    positions_.push_back(static_cast<int32_t>(position));
    slots_.push_back(slot_of({table, static_cast<size_t>(sequence.blocks)}, position, block_size_));
  }
  query_offsets_.push_back(static_cast<int32_t>(token_ids_.size()));
  kv_lens_.push_back(static_cast<int32_t>(end));
  table_rows_.push_back(sequence.table_row);

  const int64_t prompt_rows = prompt_logprob_rows(sequence, scheduled.start, scheduled.query_len);
  for (int64_t i = 0; i < prompt_rows; ++i) {
    logits_rows_.push_back(static_cast<int32_t>(first_row + i));
    rows_.push_back({&sequence, scheduled.start + i + 1, -1});
  }
  const auto end_row = static_cast<int64_t>(token_ids_.size());
  if (const int64_t rows = pooled_rows(sequence, scheduled.start, scheduled.query_len); rows > 0) {
    for (int64_t row = end_row - rows; row < end_row; ++row) hidden_rows_.push_back(static_cast<int32_t>(row));
    pooled_.push_back({&sequence, end - rows, rows});
  }
  if (!scheduled.sampled) return;
  if (sequence.request->input.pooling == Pooling::kNone) {
    logits_rows_.push_back(static_cast<int32_t>(end_row) - 1);
    rows_.push_back({&sequence, -1, static_cast<int32_t>(sampled_.size())});
  }
  sampled_.push_back({&sequence, {}});
}

StepInput CpuRunner::stage(const std::vector<ScheduledSequence>& step) {
  for (auto* buffer :
       {&token_ids_, &positions_, &query_offsets_, &kv_lens_, &table_rows_, &logits_rows_, &hidden_rows_})
    buffer->clear();
  slots_.clear();
  rows_.clear();
  pooled_.clear();
  sampled_.clear();
  query_offsets_.push_back(0);
  order_.set(step, kDecodeThreshold);
  for (const ScheduledSequence* scheduled : order_.sequences) stage_sequence(*scheduled);
  StepInput input;
  input.attention.decode = order_.decode;
  input.attention.extend = order_.extend;
  input.attention.prefill = order_.prefill;
  input.token_ids = token_ids_;
  input.positions = positions_;
  input.logits_rows = logits_rows_;
  input.hidden_rows = hidden_rows_;
  input.hidden = hidden_;
  input.attention.query_offsets = query_offsets_;
  input.attention.kv_lens = kv_lens_;
  input.attention.block_tables = tables_.data();
  input.attention.block_table_stride = tables_.stride();
  input.attention.block_table_rows = table_rows_;
  input.attention.slots = slots_;
  return input;
}

void CpuRunner::submit(const std::vector<ScheduledSequence>& step) {
  const WorkspaceScope scope(workspace_);
  const StepInput input = stage(step);
  backend_.plan(input.attention, *plan_);
  model_.forward(input, backend_, *plan_, kv_.layers(), logits_, workspace_, pool_);
  sampler_.sample(rows_, logits_, sampled_);
  const float* states = hidden_;
  for (const HiddenRows& rows : pooled_) {
    pool_rows(rows, states, DType::kF32);
    states += rows.rows * model_.config().hidden_size;
  }
}

void CpuRunner::forget(const Sequence& sequence) {
  for (Sampled& one : sampled_) {
    if (one.sequence == &sequence) one.sequence = nullptr;
  }
}

}  // namespace quire
