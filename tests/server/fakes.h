#pragma once
// Stand-ins for unit tests: a tokenizer of bytes, an exchange that records, a generation that is scripted.
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "server/http_types.h"
#include "text/tokenizer.h"

namespace quire {

// Ids 0..255 are bytes, 256 is the special token <eos>, 257 is "ab".
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEos = 256, kAb = 257;
  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
    bytes_.emplace_back("<eos>");
    bytes_.emplace_back("ab");
  }
  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool skip) const override {
    std::string out;
    for (const int32_t id : ids) {
      if (!(skip && is_special(id))) out += token_bytes(id);
    }
    return out;
  }
  std::string_view token_bytes(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  std::string_view token_string(int32_t id) const override { return token_bytes(id); }
  bool is_special(int32_t id) const override { return id == kEos; }
  int32_t token_id(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return 258; }
  int32_t bos_id() const override { return -1; }
  int32_t eos_id() const override { return kEos; }

 private:
  std::vector<std::string> bytes_;
};

class FakeExchange : public HttpExchange {
 public:
  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(HttpResponse response) override {
    whole = std::move(response);
    done = true;
    disconnect = nullptr;
  }
  void begin_stream(HttpResponse head) override { whole = std::move(head); }
  void write(std::string_view bytes) override { stream += bytes; }
  void end_stream() override {
    done = true;
    disconnect = nullptr;
  }
  void on_disconnect(std::function<void()> callback) override { disconnect = std::move(callback); }
  void post(std::function<void()> work) override { work(); }
  std::function<void()> make_waker(std::function<void()> work) override { return work; }

  HttpRequest request_;
  HttpResponse whole;
  std::string stream;
  bool done = false;
  std::function<void()> disconnect;
};

class FakeGeneration : public Generation {
 public:
  const std::string& id() const override { return id_; }
  bool poll(std::vector<GenerationEvent>& events) override {
    for (GenerationEvent& event : std::exchange(queued_, {})) events.push_back(std::move(event));
    return true;
  }
  bool wait(std::vector<GenerationEvent>& events, std::chrono::milliseconds) override { return poll(events); }
  void set_listener(std::function<void()> listener) override { listener_ = std::move(listener); }
  void stop_choice(int32_t choice) override { stopped.push_back(choice); }
  void cancel() override { ++cancelled; }
  int64_t cached_tokens() const override { return 3; }
  const std::vector<std::optional<TokenLogprobs>>& prompt_logprobs() const override { return prompt; }

  // Queues events and tells the listener once, as a step of the engine does.
  void step(std::vector<GenerationEvent> events) {
    for (GenerationEvent& event : events) queued_.push_back(std::move(event));
    if (listener_) listener_();
  }

  std::string id_ = "g";
  std::vector<int32_t> stopped;
  int cancelled = 0;
  std::vector<std::optional<TokenLogprobs>> prompt;

 private:
  std::vector<GenerationEvent> queued_;
  std::function<void()> listener_;
};

inline GenerationEvent token_event(int32_t token, int32_t choice = 0, FinishReason finish = FinishReason::kNone) {
  GenerationEvent event;
  event.choice = choice;
  event.token = token;
  event.finish = finish;
  return event;
}

}  // namespace quire
