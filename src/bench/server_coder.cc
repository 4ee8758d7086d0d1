#include "bench/server_coder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Everyday words, whose tokens prompts are made of: nobody tells a client which ids of a vocabulary are fit for text.
constexpr const char* kWords =
    " time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea kid body "
    "information "
    "back parent face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education";

class ServerCoder final : public TextCoder {
 public:
  ServerCoder(HttpClient client, std::string model) : client_(std::move(client)), model_(std::move(model)) {
    added_ = static_cast<int32_t>(tokenize("a", true).size() - tokenize("a", false).size());
    ids_ = tokenize(kWords, false);
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  }
  std::vector<int32_t> encode(const std::string& text) const override { return tokenize(text, false); }
  std::string decode(const std::vector<int32_t>& ids) const override {
    const Json answer = ask("/detokenize", {{"model", model_}, {"tokens", ids}});
    for (const char* key : {"prompt", "content"}) {
      if (const auto text = answer.find(key); text != answer.end() && text->is_string())
        return text->get<std::string>();
    }
    throw strange("/detokenize");
  }
  const std::vector<int32_t>& ordinary_ids() const override { return ids_; }
  int32_t added_tokens() const override { return added_; }

 private:
  // Both servers' names of the fields; each leaves out those that it doesn't know.
  std::vector<int32_t> tokenize(const std::string& text, bool special) const {
    const Json answer = ask("/tokenize", {{"model", model_},
                                          {"prompt", text},
                                          {"content", text},
                                          {"add_special_tokens", special},
                                          {"add_special", special}});
    const auto tokens = answer.find("tokens");
    if (tokens == answer.end() || !tokens->is_array()) throw strange("/tokenize");
    std::vector<int32_t> ids;
    for (const Json& token : *tokens) {
      if (!token.is_number_integer()) throw strange("/tokenize");
      ids.push_back(token.get<int32_t>());
    }
    return ids;
  }

  Json ask(const char* path, const Json& body) const {
    Json answer =
        Json::parse(client_.post(path, body.dump(-1, ' ', false, Json::error_handler_t::replace)), nullptr, false);
    if (!answer.is_object()) throw strange(path);
    return answer;
  }
  Error strange(const char* path) const {
    return {ErrorKind::kUnavailable, fmt::format("{}: the answer is not what a tokenizer gives", client_.url_of(path))};
  }

  HttpClient client_;
  std::string model_;
  std::vector<int32_t> ids_;
  int32_t added_ = 0;
};

}  // namespace

std::unique_ptr<TextCoder> server_coder(HttpClient client, std::string model) {
  return std::make_unique<ServerCoder>(std::move(client), std::move(model));
}

}  // namespace quire
