// Writes the logits of given token ids, teacher-forced: float32 [ids, vocab] on stdout.
// usage: quire_logits MODEL DTYPE ID...      DTYPE: float32, bfloat16 or auto
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "base/error.h"
#include "base/numa.h"
#include "model/model.h"

namespace quire {
namespace {

void write_logits(const std::string& path, const std::string& dtype, const std::vector<int32_t>& ids) {
  const auto tokens = static_cast<int32_t>(ids.size());
  ThreadPool pool(default_thread_count());
  const auto checkpoint = open_checkpoint(path, LoadFormat::kAuto);
  ModelOptions options;
  options.dtype = dtype == "float32"    ? ComputeDType::kF32
                  : dtype == "bfloat16" ? ComputeDType::kBF16
                                        : ComputeDType::kAuto;
  options.max_tokens = tokens;
  const auto model = load_model(*checkpoint, options, pool);

  AttentionGroup group = model->attention_group();
  group.kv_dtype = dtype == "float32" ? DType::kF32 : dtype == "bfloat16" ? DType::kBF16 : DType::kF16;
  const auto backend = make_attention_backend("", group);
  const auto plan = backend->make_plan(group, 1, tokens);
  Workspace workspace(model->workspace_bytes() + backend->workspace_bytes(group, 1, tokens));

  std::vector<int32_t> blocks(static_cast<size_t>((tokens + group.block_size - 1) / group.block_size));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::vector<std::byte>> memory;
  std::vector<PagedKv> kv;
  for (int64_t layer = 0; layer < model->config().layers; ++layer) {
    PagedKv view = kv_of(group, static_cast<int64_t>(blocks.size()));
    view.k = memory.emplace_back(static_cast<size_t>(k_plane_bytes(view))).data();
    view.v = memory.emplace_back(static_cast<size_t>(v_plane_bytes(view))).data();
    kv.push_back(view);
  }

  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int64_t> slots(positions.begin(), positions.end());  // blocks in order: slot = position
  const std::vector<int32_t> offsets = {0, tokens}, kv_lens = {tokens}, rows = {0};
  StepInput input{ids, positions, positions, {}};
  input.attention = {offsets, kv_lens, blocks.data(), static_cast<int64_t>(blocks.size()), rows, slots, {}, {}, {}};
  input.attention.prefill = {0, 1, 0, tokens, tokens, tokens};
  backend->plan(input.attention, *plan);
  std::vector<float> logits(ids.size() * static_cast<size_t>(model->config().vocab_size));
  model->forward(input, *backend, *plan, kv, logits.data(), workspace, pool);
  std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: quire_logits MODEL DTYPE ID...\n", stderr);
    return 2;
  }
  try {
    std::vector<int32_t> ids;
    for (int i = 3; i < argc; ++i) ids.push_back(std::stoi(argv[i]));
    quire::write_logits(argv[1], argv[2], ids);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire_logits: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
