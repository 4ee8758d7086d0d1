#pragma once
// POST /v1/embeddings: vectors of texts, token ids or a conversation, in the shape of the OpenAI API.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/config.h"
#include "engine/generation.h"
#include "server/answer.h"
#include "server/app.h"
#include "server/request_fields.h"

namespace quire {

struct EmbeddingFields {
  std::string model;  // empty = the served one
  std::vector<CompletionPrompt> inputs;
  std::optional<ChatFields> conversation;  // instead of inputs
  bool base64 = false, normalize = true, add_special_tokens = true;
  std::optional<int64_t> dimensions;              // the first so many only
  std::optional<int64_t> truncate_prompt_tokens;  // -1 = as many as fit
  bool truncate_from_left = false;
  int64_t priority = 0;
  std::string cache_salt, request_id;
};

// Throws Error or ApiError (400) naming the field. hidden_size: the most dimensions there are.
EmbeddingFields read_embedding_fields(const nlohmann::ordered_json& body, const EngineConfig& engine,
                                      const ServerConfig& server, int64_t hidden_size);

// A model's state as a client gets it: cut to `dimensions`, then of length 1 if asked for.
std::vector<float> finish_embedding(std::span<const float> state, std::optional<int64_t> dimensions, bool normalize);
// [0.5,..], or base64 of little-endian floats in quotes. A float's digits are the fewest that give it back.
std::string embedding_json(std::span<const float> embedding, bool base64);

// One request at work: at most kAtOnce inputs in the engine at a time, so that a long list leaves room in the queue for
// others. All work is done on the connection's thread. The client's going away cancels it.
class EmbeddingSession : public std::enable_shared_from_this<EmbeddingSession> {
 public:
  static constexpr size_t kAtOnce = 128;
  using Submit = std::function<std::shared_ptr<Generation>(GenerateRequest)>;
  struct Task {
    std::string id, model;
    int64_t created = 0, priority = 0;
    Pooling pooling = Pooling::kLast;
    EmbeddingFields fields;                 // inputs are in ids
    std::vector<std::vector<int32_t>> ids;  // of each input
    bool prompt_tokens_details = false;
    HttpHeaders headers;                          // of the answer
    const std::atomic<bool>* draining = nullptr;  // set once the engine takes nothing more; null = never
  };

  // Begins; the exchange owns the session until the answer ends. while_running lives as long.
  static void start(const std::shared_ptr<HttpExchange>& exchange, Task task, Submit submit,
                    std::shared_ptr<void> while_running);
  EmbeddingSession(std::shared_ptr<HttpExchange> exchange, Task task, Submit submit,
                   std::shared_ptr<void> while_running);

 private:
  struct Running {
    size_t input;
    std::shared_ptr<Generation> generation;
  };
  void begin();
  void pump();
  void advance();
  void submit_more();
  bool take(const Running& running);  // true: it has ended
  void finish();
  void fail(const Error& error);
  void give_up(ErrorKind kind, const char* message) noexcept;
  void cancel();

  std::shared_ptr<HttpExchange> exchange_;  // null once the session can't even tell of its failure
  Task task_;
  Submit submit_;
  std::shared_ptr<void> while_running_;
  std::vector<Running> running_;
  std::vector<std::string> answers_;  // JSON of each input's embedding
  size_t next_ = 0;                   // input to submit
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0;
  bool ended_ = false;
  std::function<void()> waker_;  // what the engine calls
  std::vector<GenerationEvent> events_;
};

void append_embeddings_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
