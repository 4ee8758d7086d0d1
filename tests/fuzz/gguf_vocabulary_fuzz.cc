// Any bytes as a GGUF file, of which only the vocabulary counts: it loads, or an Error says why not; what loads encodes
// and decodes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "checkpoint/gguf_tokenizer.h"
#include "fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::fuzz::load_and_use([&] {
    const quire::GgufFile file(std::as_bytes(std::span(data, size)), "fuzz.gguf");
    auto source = quire::read_gguf_tokenizer(file).gguf;
    quire::GgufVocabulary vocabulary;
    if (source) {
      vocabulary = {std::move(source->model),
                    std::move(source->pre),
                    std::move(source->tokens),
                    std::move(source->merges),
                    std::move(source->scores),
                    std::move(source->token_types),
                    source->bos_id,
                    source->eos_id,
                    source->add_bos,
                    source->add_eos,
                    source->add_space_prefix};
    }
    return quire::tokenizer_from_gguf(vocabulary);
  });
  return 0;
}
