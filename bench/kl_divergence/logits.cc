// Writes the logits of given token ids, teacher-forced: float32 [ids, vocab] on stdout.
// usage: quire_logits DEVICE MODEL DTYPE ID...      DEVICE: cpu, cuda, hip    DTYPE: float32, bfloat16, float16 (GPU),
// auto
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/numa.h"
#include "gpu/device.h"
#include "kl_divergence/logits_device.h"

namespace quire {
namespace {

ComputeDType compute_dtype(const std::string& name) {
  if (name == "float32") return ComputeDType::kF32;
  if (name == "bfloat16") return ComputeDType::kBF16;
  if (name == "float16") return ComputeDType::kF16;
  if (name == "auto") return ComputeDType::kAuto;
  throw invalid_argument("DTYPE " + name + ": must be float32, bfloat16, float16 or auto");
}

DType kv_dtype(ComputeDType compute) {
  if (compute == ComputeDType::kF32) return DType::kF32;
  return compute == ComputeDType::kBF16 ? DType::kBF16 : DType::kF16;
}

std::unique_ptr<LogitsDevice> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_logits_device();
  if (gpu::insists_on_device(name)) return make_gpu_logits_device();
  throw invalid_argument("DEVICE " + name + ": must be cpu, cuda or hip");
}

void write_logits(LogitsDevice& device, const std::string& path, ComputeDType dtype, const std::vector<int32_t>& ids) {
  const auto tokens = static_cast<int32_t>(ids.size());
  ThreadPool pool(default_thread_count());
  const auto checkpoint = open_checkpoint(path, LoadFormat::kAuto);
  ModelOptions options;
  options.dtype = dtype;
  options.max_tokens = options.max_logits_rows = tokens;
  const auto model = load_model(*checkpoint, options, device.model_device(*checkpoint, options, pool));

  AttentionGroup group = model->attention_group();
  group.kv_dtype = kv_dtype(dtype);
  const auto backend = device.attention(group);
  const auto plan = backend->make_plan(group, 1, tokens);
  const size_t workspace_bytes = model->workspace_bytes() + backend->workspace_bytes(group, 1, tokens);
  Workspace workspace(device.allocate(workspace_bytes), workspace_bytes);

  std::vector<int32_t> blocks(static_cast<size_t>((tokens + group.block_size - 1) / group.block_size));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<PagedKv> kv;
  for (int64_t layer = 0; layer < model->config().layers; ++layer) {
    PagedKv view = kv_of(group, static_cast<int64_t>(blocks.size()));
    view.k = device.allocate(static_cast<size_t>(k_plane_bytes(view)));
    view.v = device.allocate(static_cast<size_t>(v_plane_bytes(view)));
    kv.push_back(view);
  }

  std::vector<int32_t> position(ids.size());
  std::iota(position.begin(), position.end(), 0);
  const size_t n = ids.size();
  const int32_t* positions = device.copy_of(position);
  // One request, a prefill of blocks in order: slot = position.
  StepInput input{{device.copy_of(ids), n}, {positions, n}, {positions, n}, {}};
  input.attention = {{device.copy_of<int32_t>({0, tokens}), 2},
                     {device.copy_of<int32_t>({tokens}), 1},
                     device.copy_of(blocks),
                     static_cast<int64_t>(blocks.size()),
                     {device.copy_of<int32_t>({0}), 1},
                     {device.copy_of(std::vector<int64_t>(position.begin(), position.end())), n},
                     {},
                     {},
                     {0, 1, 0, tokens, tokens, tokens}};
  backend->plan(input.attention, *plan);
  std::vector<float> logits(n * static_cast<size_t>(model->config().vocab_size));
  const size_t bytes = logits.size() * sizeof(float);
  auto* computed = static_cast<float*>(device.allocate(bytes));
  model->forward(input, *backend, *plan, kv, computed, workspace, pool);
  device.copy_out(logits.data(), computed, bytes);
  std::fwrite(logits.data(), 1, bytes, stdout);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: quire_logits cpu|cuda MODEL DTYPE ID...\n", stderr);
    return 2;
  }
  try {
    std::vector<int32_t> ids;
    for (int i = 4; i < argc; ++i) ids.push_back(std::stoi(argv[i]));
    const auto device = quire::make_device(argv[1]);
    quire::write_logits(*device, argv[2], quire::compute_dtype(argv[3]), ids);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire_logits: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
