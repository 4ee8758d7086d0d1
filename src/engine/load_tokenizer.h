#pragma once
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace quire {

// The tokenizer in a model's files; null if they hold none.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerFiles files);

// The tokenizer of a model as --model and --tokenizer name it, or of a file (tokenizer.json, a SentencePiece .model),
// without reading weights. Throws Error naming the model and what is wrong with it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name);

}  // namespace quire
