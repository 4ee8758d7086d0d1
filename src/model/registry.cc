// Architectures by the name in config.json; GGUF names are mapped to these by the checkpoint reader.
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "model/llama.h"
#include "model/model.h"

namespace quire {
namespace {

struct Family {
  std::string_view architecture;
  std::unique_ptr<Model> (*load)(const Checkpoint&, const ModelOptions&, std::unique_ptr<ModelDevice>);
};

constexpr std::array kFamilies = {Family{"LlamaForCausalLM", load_llama}};

}  // namespace

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const ModelOptions& options,
                                  std::unique_ptr<ModelDevice> device) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == checkpoint.config().architecture)
      return family.load(checkpoint, options, std::move(device));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  throw invalid_argument(fmt::format("{}: architecture {} is not supported; there are: {}", checkpoint.path(),
                                     checkpoint.config().architecture, known),
                         "model");
}

}  // namespace quire
