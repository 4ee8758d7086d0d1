// Drives quire's tokenizers from scripts.
//   quire_tokenizer_driver texts FILE   texts on stdin, each after its length (32 bits); for each, on stdout: the
//   number of ids
//                                       with special tokens and the ids, the text that decoding them gives without
//                                       special tokens, and the same shown token by token (each after its length)
//   quire_tokenizer_driver ids FILE     lists of ids on stdin, each after its length; the two texts of each, with
//   special tokens quire_tokenizer_driver time FILE TEXT [ROUNDS]   seconds: loading, encoding the lines of TEXT; and
//   the number of tokens quire_tokenizer_driver repeat FILE TEXT BYTES    seconds for TEXT repeated up to so many bytes
// FILE: tokenizer.json, a SentencePiece .model or a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

// CPU time of this process, which has one thread: other work on the machine counts for little.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::unique_ptr<Tokenizer> load(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (path.ends_with(".json")) return tokenizer_from_json(read_text_file(path, kMaxBytes), "");
  if (path.ends_with(".model")) return tokenizer_from_sentence_piece(read_text_file(path, kMaxBytes), "");
  const TokenizerFiles files = open_tokenizer_files(path);
  if (!files.gguf) throw invalid_argument(path + " has no tokenizer");
  TokenizerFiles::Gguf& g = *files.gguf;
  GgufVocabulary v{std::move(g.model),
                   std::move(g.pre),
                   std::move(g.tokens),
                   std::move(g.merges),
                   std::move(g.scores),
                   std::move(g.token_types),
                   g.bos_id,
                   g.eos_id,
                   g.add_bos,
                   g.add_eos,
                   g.add_space_prefix};
  return tokenizer_from_gguf(v);
}

void write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, stdout) != bytes) throw Error(ErrorKind::kInternal, "stdout is closed");
}
void write_counted(std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  write(&length, sizeof length);
  write(text.data(), text.size());
}
template <class T>
bool read_counted(T& items) {
  uint32_t count = 0;
  if (std::fread(&count, sizeof count, 1, stdin) != 1) return false;
  items.resize(count);
  return std::fread(items.data(), sizeof items[0], count, stdin) == count;
}

std::string shown(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer stream(tokenizer, {.skip_special_tokens = skip_special});
  std::string text;
  for (const int32_t id : ids) {
    stream.push(id);
    text += stream.take();
  }
  stream.finish();
  text += stream.take();
  return text;
}

void run_texts(const Tokenizer& tokenizer) {
  for (std::string text; read_counted(text);) {
    const std::vector<int32_t> ids = tokenizer.encode(text, true);
    const auto count = static_cast<uint32_t>(ids.size());
    write(&count, sizeof count);
    write(ids.data(), ids.size() * sizeof(int32_t));
    write_counted(tokenizer.decode(ids, true));
    write_counted(shown(tokenizer, ids, true));
  }
}

void run_ids(const Tokenizer& tokenizer) {
  for (std::vector<int32_t> ids; read_counted(ids);) {
    write_counted(tokenizer.decode(ids, false));
    write_counted(shown(tokenizer, ids, false));
  }
}

void run_time(const std::string& path, const std::string& text_path, int rounds) {
  double load_seconds = std::numeric_limits<double>::infinity(), encode_seconds = load_seconds;
  std::unique_ptr<Tokenizer> tokenizer;
  for (int i = 0; i < rounds; ++i) {
    const double begin = cpu_seconds();
    tokenizer = load(path);
    load_seconds = std::min(load_seconds, cpu_seconds() - begin);
  }
  constexpr size_t kMaxBytes = size_t{1} << 30;
  const std::string text = read_text_file(text_path, kMaxBytes);
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.data() + at, end - at);
    at = end + 1;
  }
  size_t tokens = 0;
  for (int i = 0; i < rounds; ++i) {
    tokens = 0;
    const double begin = cpu_seconds();
    for (const std::string_view line : lines) tokens += tokenizer->encode(line, false).size();
    encode_seconds = std::min(encode_seconds, cpu_seconds() - begin);
  }
  fmt::print("{:.4f} {:.4f} {}\n", load_seconds, encode_seconds, tokens);
}

void run_repeat(const std::string& path, const std::string& piece, size_t bytes) {
  const std::unique_ptr<Tokenizer> tokenizer = load(path);
  std::string text;
  while (text.size() < bytes) text += piece;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    tokenizer->encode(text, false);
    best = std::min(best, cpu_seconds() - begin);
  }
  fmt::print("{:.5f}\n", best);
}

int run(const std::vector<std::string>& args) {
  const std::string command = args.size() < 2 ? "" : args[0];
  if (command == "texts") {
    run_texts(*load(args[1]));
  } else if (command == "ids") {
    run_ids(*load(args[1]));
  } else if (command == "time" && args.size() > 2) {
    run_time(args[1], args[2], args.size() > 3 ? std::stoi(args[3]) : 3);
  } else if (command == "repeat" && args.size() > 3) {
    run_repeat(args[1], args[2], std::stoul(args[3]));
  } else {
    std::fputs("usage: quire_tokenizer_driver texts|ids|time|repeat FILE ...\n", stderr);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire_tokenizer_driver: %s\n", error.what());
    return 1;
  }
}
