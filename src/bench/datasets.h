#pragma once
// Prompts for benchmarks: made up, or from the files that the field uses.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/option_table.h"

namespace quire {

class ChatFormat;
class Tokenizer;

// What a dataset needs of a tokenizer, which may be here or behind a server.
class TextCoder {
 public:
  virtual ~TextCoder() = default;
  // Ids without the special tokens that begin or end a prompt.
  virtual std::vector<int32_t> encode(const std::string& text) const = 0;
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // Ids to make prompts of: those of the vocabulary that are no special tokens, or some of them.
  virtual const std::vector<int32_t>& ordinary_ids() const = 0;
  // Special tokens that a server adds to a prompt.
  virtual int32_t added_tokens() const = 0;
  // The text as a user's message in the model's chat template, up to where the answer begins; empty optional: there is
  // no template.
  virtual std::optional<std::string> as_message(const std::string& text) const;
};

// chat may be null; what is given must outlive the coder.
std::unique_ptr<TextCoder> local_coder(const Tokenizer& tokenizer, const ChatFormat* chat = nullptr);

struct DatasetOptions {
  std::string name = "random", path;
  int32_t num_prompts = 1000;
  uint64_t seed = 0;
  std::optional<int64_t> input_len, output_len;  // stand in for those of the dataset
  int32_t random_input_len = 1024, random_output_len = 128, random_prefix_len = 0;
  std::string random_range_ratio = "0.0";  // a number in [0, 1), or {"input": .., "output": ..}
  std::optional<int64_t> sharegpt_output_len;
  int32_t custom_output_len = 256;  // -1: what each line says
  int32_t prefix_len = 256, suffix_len = 256, num_prefixes = 10, repetition_output_len = 128;
  bool no_oversample = false, disable_shuffle = false, skip_chat_template = false;
};

struct DatasetRequest {
  std::string prompt;
  int64_t prompt_len = 0;  // tokens, those that a server adds included; 0 if nobody could count
  int32_t output_len = 0;
};

// The rows --dataset-name, --dataset-path, --num-prompts, --input-len, --output-len and those of each dataset.
void add_dataset_options(OptionTable& table, DatasetOptions& options);

// Copies --input-len and --output-len to where they count. Throws Error(kInvalidArgument) where a flag doesn't fit the
// dataset, its file can't be read, or --random-range-ratio is not what it must be.
void finish_dataset_options(DatasetOptions& options);

struct LengthRange {
  int64_t least = 1, most = 1;
};
// Lengths in [floor(l (1 - ratio)), ceil(l (1 + ratio))], at least 1.
LengthRange random_lengths(int64_t length, double ratio);
double random_ratio(const DatasetOptions& options, const char* which);  // "input" or "output"

// True if prompts are made here and can't be without a tokenizer.
bool needs_coder(const DatasetOptions& options);

// num_prompts requests, the same for the same seed. coder may be null where needs_coder() is false: lengths of prompts
// are unknown then. Throws Error(kInvalidArgument) naming file and line if the file is not what it must be, or if it
// has no usable prompt.
std::vector<DatasetRequest> load_dataset(const DatasetOptions& options, const TextCoder* coder);

}  // namespace quire
