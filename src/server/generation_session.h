#pragma once
// One HTTP request at work: prompts submitted, events taken on the connection's thread, text made of them, the answer
// sent whole or in pieces. The client's going away cancels it.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/answer.h"
#include "server/http_types.h"

namespace quire {

class GenerationSession : public std::enable_shared_from_this<GenerationSession> {
 public:
  using Submit = std::function<std::shared_ptr<Generation>(GenerateRequest)>;
  struct Prompt {
    std::vector<int32_t> ids;
    std::string text;  // for echo
  };

  // Submits every prompt and lets the exchange own the session. Throws what submit throws, with nothing left running.
  static void start(const std::shared_ptr<HttpExchange>& exchange, std::unique_ptr<AnswerFormat> format,
                    std::vector<Prompt> prompts, HttpHeaders headers, const Submit& submit,
                    std::shared_ptr<void> while_running);

  GenerationSession(std::shared_ptr<HttpExchange> exchange, std::unique_ptr<AnswerFormat> format, HttpHeaders headers,
                    std::shared_ptr<void> while_running);

 private:
  void submit_all(std::vector<Prompt> prompts, const Submit& submit);
  void begin();
  void listen();
  void cancel();
  void pump();
  void take_events();
  // Takes one event. False if the whole request has failed and was answered.
  bool take(PromptState& prompt, GenerationEvent event);
  void end_choice(ChoiceState& choice, FinishReason finish);
  void flush();
  void stream_news(PromptState& prompt, ChoiceState& choice);
  void finish();
  void fail(const Error& error);
  void give_up(ErrorKind kind, const char* message) noexcept;

  std::shared_ptr<HttpExchange> exchange_;  // null once the session can't even tell of its failure
  std::unique_ptr<AnswerFormat> format_;
  HttpHeaders headers_;
  std::shared_ptr<void> while_running_;
  std::vector<PromptState> prompts_;
  size_t open_choices_ = 0;
  bool ended_ = false;
  std::vector<GenerationEvent> events_;
  std::string out_;
};

}  // namespace quire
