#include "text/sentence_piece_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

Error broken(std::string_view what) {
  return invalid_argument(fmt::format("the SentencePiece model is broken: {}", what), "tokenizer.model");
}
Error unsupported(std::string_view field, std::string_view what, std::string_view supported) {
  return invalid_argument(
      fmt::format("the SentencePiece model's {} {} is not supported (supported: {})", field, what, supported),
      std::string(field));
}

// The fields of one message, in the wire format of protocol buffers.
class Message {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;      // of an integer, a bool, an enum; the bits of a float
    std::string_view bytes;  // of a string or a message
  };
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    constexpr uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;
    const uint64_t tag = varint();
    field = {};
    field.number = tag >> 3;
    switch (tag & 7) {
      case kVarint:
        field.value = varint();
        break;
      case kFixed64:
        field.value = fixed(8);
        break;
      case kBytes:
        field.bytes = take(varint());
        break;
      case kFixed32:
        field.value = fixed(4);
        break;
      default:
        throw broken(fmt::format("field {} has the wire type {}", field.number, tag & 7));
    }
    return true;
  }

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) throw broken(fmt::format("a field of {} bytes where {} are left", bytes, rest_.size()));
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  uint64_t fixed(size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, take(bytes).data(), bytes);
    return value;
  }
  uint64_t varint() {
    constexpr int kMaxShift = 63;
    uint64_t value = 0;
    for (int shift = 0; shift <= kMaxShift; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw broken("an integer of more than 64 bits");
  }

  std::string_view rest_;
};

float float_of(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &low, sizeof value);
  return value;
}

void read_piece(std::string_view bytes, GgufVocabulary& vocabulary) {
  constexpr uint64_t kMaxType = 6;
  std::string_view piece;
  float score = 0;
  int32_t type = 1;
  Message message(bytes);
  for (Message::Field field; message.next(field);) {
    if (field.number == 1) piece = field.bytes;
    if (field.number == 2) score = float_of(field.value);
    if (field.number == 3) type = field.value <= kMaxType ? static_cast<int32_t>(field.value) : 0;
  }
  const size_t id = vocabulary.tokens.size();
  if (id > static_cast<size_t>(Vocabulary::kMaxId))
    throw broken(fmt::format("more than {} pieces", Vocabulary::kMaxId));
  if (!std::isfinite(score)) throw broken(fmt::format("the score of piece {} is {}", id, score));
  if (type < 1) throw broken(fmt::format("piece {} has an unknown type", id));
  if (type == 6 && byte_token_value(piece) < 0)
    throw broken(fmt::format("piece {} is a byte but spelled {}", id, quote(piece, 40)));
  vocabulary.tokens.emplace_back(piece);
  vocabulary.scores.push_back(score);
  vocabulary.token_types.push_back(type);
}

void read_trainer(std::string_view bytes, SentencePieceModel& model) {
  uint64_t type = 1;
  Message message(bytes);
  for (Message::Field field; message.next(field);) {
    if (field.number == 3) type = field.value;
    if (field.number == 24 && field.value != 0) throw unsupported("treat_whitespace_as_suffix", "true", "false");
    if (field.number == 35) model.byte_fallback = field.value != 0;
    if (field.number == 41) model.vocabulary.bos_id = static_cast<int32_t>(field.value);
    if (field.number == 42) model.vocabulary.eos_id = static_cast<int32_t>(field.value);
  }
  if (type != 1 && type != 2) throw unsupported("model_type", fmt::format("{}", type), "1 (unigram), 2 (bpe)");
  model.type = type == 1 ? SentencePieceModel::Type::kUnigram : SentencePieceModel::Type::kBpe;
}

void read_normalizer(std::string_view bytes, SentencePieceModel& model) {
  Message message(bytes);
  for (Message::Field field; message.next(field);) {
    if (field.number == 2) model.normalization.charsmap = field.bytes;
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.normalization.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model.normalization.escape_whitespaces = field.value != 0;
  }
}

}  // namespace

SentencePieceModel read_sentence_piece_model(std::string_view file) {
  SentencePieceModel model;
  model.vocabulary.bos_id = 1;  // where the file doesn't say
  model.vocabulary.eos_id = 2;
  Message message(file);
  for (Message::Field field; message.next(field);) {
    if (field.number == 1) read_piece(field.bytes, model.vocabulary);
    if (field.number == 2) read_trainer(field.bytes, model);
    if (field.number == 3) read_normalizer(field.bytes, model);
  }
  const auto tokens = static_cast<int64_t>(model.vocabulary.tokens.size());
  if (tokens == 0) throw broken("it has no pieces");
  for (int32_t* id : {&model.vocabulary.bos_id, &model.vocabulary.eos_id}) {
    if (*id < 0 || *id >= tokens) *id = -1;  // -1 says that there is none
  }
  return model;
}

}  // namespace quire
