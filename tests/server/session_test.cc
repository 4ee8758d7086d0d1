// Answers of both endpoints from scripted engine events: whole and streamed, stops, log-probabilities, failures.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fakes.h"
#include "server/generation_session.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

class Session : public testing::Test {
 protected:
  AnswerContext context() {
    AnswerContext c;
    c.id = "cmpl-1";
    c.model = "m";
    c.created = 7;
    c.fields = fields;
    c.tokenizer = &tokenizer;
    c.role = "assistant";
    c.prompt_tokens_details = details;
    return c;
  }
  template <typename Format>
  void start(std::vector<GenerationSession::Prompt> prompts) {
    GenerationSession::start(
        exchange, std::make_unique<Format>(context()), std::move(prompts), {},
        [this](GenerateRequest request) {
          requests.push_back(std::move(request));
          return generations.emplace_back(std::make_shared<FakeGeneration>());
        },
        nullptr);
  }
  void start_completion(const std::string& prompt = "hi") {
    start<CompletionAnswer>({{tokenizer.encode(prompt, true), prompt}});
  }
  void start_chat() { start<ChatAnswer>({{tokenizer.encode("hi", true), ""}}); }
  void say(std::string_view text, FinishReason last = FinishReason::kNone) {
    for (size_t i = 0; i < text.size(); ++i) {
      generations[0]->step(
          {token_event(static_cast<unsigned char>(text[i]), 0, i + 1 == text.size() ? last : FinishReason::kNone)});
    }
  }
  Json body() const { return Json::parse(exchange->whole.body); }
  // The events of the stream; the last must be [DONE].
  std::vector<Json> events() const {
    std::vector<Json> out;
    std::string_view rest = exchange->stream;
    while (!rest.empty()) {
      const size_t end = rest.find("\n\n");
      EXPECT_TRUE(rest.starts_with("data: ") && end != std::string_view::npos) << rest;
      if (end == std::string_view::npos) break;
      const std::string_view data = rest.substr(6, end - 6);
      rest.remove_prefix(end + 2);
      if (data == "[DONE]") {
        EXPECT_TRUE(rest.empty()) << "events after [DONE]";
        break;
      }
      out.push_back(Json::parse(data));
    }
    return out;
  }

  ByteTokenizer tokenizer;
  GenerationFields fields;
  bool details = false;
  std::shared_ptr<FakeExchange> exchange = std::make_shared<FakeExchange>();
  std::vector<std::shared_ptr<FakeGeneration>> generations;
  std::vector<GenerateRequest> requests;
};

TEST_F(Session, WholeCompletion) {
  details = true;
  start_completion();
  say("yes", FinishReason::kLength);
  ASSERT_TRUE(exchange->done);
  const Json expected = Json::parse(
      R"({"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":"yes",
    "logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}],
    "service_tier":null,"system_fingerprint":null,
    "usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":null},"kv_transfer_params":null})");
  EXPECT_EQ(body(), expected) << exchange->whole.body;
  EXPECT_EQ(exchange->whole.content_type, "application/json");
}

TEST_F(Session, WholeChat) {
  fields.return_token_ids = true;
  start_chat();
  say("y", FinishReason::kNone);
  GenerationEvent end = token_event(ByteTokenizer::kEos, 0, FinishReason::kStop);
  generations[0]->step({end});
  const Json answer = body();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(
      answer["choices"][0]["message"],
      Json::parse(
          R"({"role":"assistant","content":"y","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null})"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(answer["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(answer["choices"][0]["token_ids"], Json({'y', 256}));
  EXPECT_EQ(answer["prompt_token_ids"], Json({'h', 'i'}));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
  EXPECT_TRUE(answer["usage"]["prompt_tokens_details"].is_null());
}

TEST_F(Session, StreamedChat) {
  fields.stream = fields.include_usage = true;
  start_chat();
  EXPECT_EQ(exchange->whole.content_type, "text/event-stream; charset=utf-8");
  say("ok", FinishReason::kLength);
  const auto all = events();
  ASSERT_EQ(all.size(), 4u) << exchange->stream;
  EXPECT_EQ(all[0], Json::parse(R"({"id":"cmpl-1","object":"chat.completion.chunk","created":7,"model":"m",
    "choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"));
  EXPECT_EQ(all[1]["choices"][0]["delta"], Json::parse(R"({"content":"o"})"));
  EXPECT_TRUE(all[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(all[2]["choices"][0]["delta"], Json::parse(R"({"content":"k"})"));
  EXPECT_EQ(all[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(all[3]["choices"], Json::array());
  EXPECT_EQ(
      all[3]["usage"],
      Json::parse(
          R"({"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":null})"));
}

TEST_F(Session, StepsThatArriveTogetherMakeOneChunk) {
  fields.stream = fields.include_usage = fields.continuous_usage_stats = true;
  start_completion();
  generations[0]->step({token_event('a'), token_event('b')});
  generations[0]->step({token_event('c', 0, FinishReason::kLength)});
  const auto all = events();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["choices"][0]["text"], "ab");
  EXPECT_EQ(all[0]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(all[1]["usage"]["completion_tokens"], 3);
}

TEST_F(Session, StreamedTextIsTheWholeText) {
  const std::string text = "h\xC3\xA9llo \xF0\x9F\x98\x80 STO end";
  fields.params.stop = {"STOP"};
  start_completion();
  say(text, FinishReason::kLength);
  const std::string whole = body()["choices"][0]["text"];
  EXPECT_EQ(whole, text);

  exchange = std::make_shared<FakeExchange>();
  generations.clear();
  fields.stream = true;
  start_completion();
  say(text, FinishReason::kLength);
  std::string joined;
  int finished = 0;
  for (const Json& event : events()) {
    joined += event["choices"][0]["text"].get<std::string>();
    finished += event["choices"][0]["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(finished, 1);
}

TEST_F(Session, StopStringAcrossTokens) {
  fields.params.stop = {"never", "END"};
  start_completion();
  generations[0]->step({token_event('x'), token_event('E'), token_event('N'), token_event('D'), token_event('z')});
  ASSERT_TRUE(exchange->done);
  const Json choice = body()["choices"][0];
  EXPECT_EQ(choice["text"], "x");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "END");
  EXPECT_EQ(body()["usage"]["completion_tokens"], 4) << "what was computed past the stop is not counted";
  EXPECT_EQ(generations[0]->stopped, std::vector<int32_t>{0});
}

TEST_F(Session, StopTokenIsHiddenUnlessAskedFor) {
  GenerationEvent end = token_event('!', 0, FinishReason::kStop);
  end.stop_token_id = '!';
  start_completion();
  generations[0]->step({token_event('x'), end});
  EXPECT_EQ(body()["choices"][0]["text"], "x");
  EXPECT_EQ(body()["choices"][0]["stop_reason"], '!');

  exchange = std::make_shared<FakeExchange>();
  generations.clear();
  fields.params.include_stop_str_in_output = true;
  start_completion();
  generations[0]->step({token_event('x'), end});
  EXPECT_EQ(body()["choices"][0]["text"], "x!");
}

TEST_F(Session, HalfCharacterAtTheEnd) {
  start_completion();
  say("a\xF0\x9F", FinishReason::kLength);
  EXPECT_EQ(body()["choices"][0]["text"], "a\xEF\xBF\xBD");
}

TEST_F(Session, ChoicesAndPromptsAreNumberedThrough) {
  fields.params.n = 2;
  start<CompletionAnswer>({{{1, 2}, ""}, {{3}, ""}});
  ASSERT_EQ(generations.size(), 2u);
  generations[1]->step({token_event('d', 1, FinishReason::kLength), token_event('c', 0, FinishReason::kLength)});
  generations[0]->step({token_event('b', 1, FinishReason::kLength)});
  EXPECT_FALSE(exchange->done);
  generations[0]->step({token_event('a', 0, FinishReason::kLength)});
  const Json answer = body();
  ASSERT_EQ(answer["choices"].size(), 4u);
  std::string text;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    text += answer["choices"][i]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "abcd");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TokenLogprobs logprobs_of(int32_t token, float value, std::vector<TokenLogprobs::Entry> top) {
  return {{token, value, 9}, std::move(top)};
}

TEST_F(Session, EchoWithLogprobsAndNoNewToken) {
  fields.echo = fields.logprobs = true;
  fields.params.logprobs = fields.params.prompt_logprobs = 1;
  fields.params.max_tokens = 0;
  start_completion("h\xC3");
  generations[0]->prompt = {std::nullopt, logprobs_of(0xC3, -2, {{'x', -0.5f, 1}})};
  generations[0]->step({token_event('q', 0, FinishReason::kLength)});
  const Json choice = body()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(
      choice["logprobs"],
      Json::parse(
          R"({"text_offset":[0,1],"token_logprobs":[null,-2],"tokens":["h","\ufffd"],"top_logprobs":[null,{"x":-0.5,"\ufffd":-2}]})"))
      << choice;
  EXPECT_TRUE(choice["prompt_logprobs"].is_null());
  EXPECT_EQ(body()["usage"]["completion_tokens"], 0);
}

TEST_F(Session, EchoStreamed) {
  fields.echo = fields.logprobs = fields.stream = true;
  fields.params.logprobs = fields.params.prompt_logprobs = 0;
  start_completion("h");
  generations[0]->prompt = {std::nullopt};
  GenerationEvent event = token_event(ByteTokenizer::kAb, 0, FinishReason::kLength);
  event.logprobs = logprobs_of(ByteTokenizer::kAb, -1, {});
  generations[0]->step({event});
  const auto all = events();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["choices"][0]["text"], "h");
  EXPECT_EQ(all[0]["choices"][0]["logprobs"]["token_logprobs"], Json({nullptr}));
  EXPECT_EQ(all[1]["choices"][0]["text"], "ab");
  EXPECT_EQ(all[1]["choices"][0]["logprobs"],
            Json::parse(R"({"text_offset":[1],"token_logprobs":[-1],"tokens":["ab"],"top_logprobs":[{"ab":-1}]})"));
}

TEST_F(Session, PromptLogprobs) {
  fields.return_prompt_logprobs = true;
  fields.params.prompt_logprobs = 1;
  start_completion("hi");
  generations[0]->prompt = {std::nullopt, logprobs_of('i', -3, {{'a', -1, 1}})};
  generations[0]->step({token_event('q', 0, FinishReason::kLength)});
  EXPECT_EQ(
      body()["choices"][0]["prompt_logprobs"],
      Json::parse(
          R"([null,{"105":{"logprob":-3,"rank":9,"decoded_token":"i"},"97":{"logprob":-1,"rank":1,"decoded_token":"a"}}])"));
}

TEST_F(Session, ChatLogprobsGiveRawBytes) {
  fields.logprobs = true;
  fields.params.logprobs = 1;
  start_chat();
  GenerationEvent event = token_event(0xF0, 0, FinishReason::kLength);
  event.logprobs = logprobs_of(0xF0, -std::numeric_limits<float>::infinity(), {{'a', -0.25f, 1}});
  generations[0]->step({event});
  EXPECT_EQ(
      body()["choices"][0]["logprobs"],
      Json::parse(
          R"({"content":[{"token":"\ufffd","logprob":-9999,"bytes":[240],"top_logprobs":[{"token":"a","logprob":-0.25,"bytes":[97]}]}]})"));
}

TEST_F(Session, DisconnectCancels) {
  fields.stream = true;
  start_chat();
  say("a");
  ASSERT_TRUE(exchange->disconnect);
  std::exchange(exchange->disconnect, nullptr)();
  EXPECT_EQ(generations[0]->cancelled, 1);
  const std::string before = exchange->stream;
  generations[0]->step({token_event(-1, 0, FinishReason::kAbort)});
  EXPECT_EQ(exchange->stream, before);
}

TEST_F(Session, EngineErrorWhole) {
  start_chat();
  GenerationEvent event = token_event(-1, 0, FinishReason::kError);
  event.error = "no finite logit";
  generations[0]->step({event});
  EXPECT_EQ(exchange->whole.status, 500);
  EXPECT_EQ(body()["error"]["message"], "no finite logit");
  EXPECT_EQ(body()["error"]["type"], "InternalServerError");
}

TEST_F(Session, AbortInAStream) {
  fields.stream = true;
  start_chat();
  say("a");
  generations[0]->step({token_event(-1, 0, FinishReason::kAbort)});
  ASSERT_TRUE(exchange->done);
  EXPECT_TRUE(exchange->stream.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(events().back()["error"]["code"], 503);
}

TEST_F(Session, RefusedPromptCancelsTheOthers) {
  int count = 0;
  EXPECT_THROW(GenerationSession::start(
                   exchange, std::make_unique<CompletionAnswer>(context()), {{{1}, ""}, {{2}, ""}}, {},
                   [&](GenerateRequest) -> std::shared_ptr<Generation> {
                     if (++count == 2) throw Error(ErrorKind::kUnavailable, "full");
                     return generations.emplace_back(std::make_shared<FakeGeneration>());
                   },
                   nullptr),
               Error);
  EXPECT_EQ(generations[0]->cancelled, 1);
  EXPECT_TRUE(exchange->stream.empty());
}

TEST_F(Session, NothingIsLeftBehind) {
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = alive;
  GenerationSession::start(
      exchange, std::make_unique<CompletionAnswer>(context()), {{{1}, ""}}, {},
      [&](GenerateRequest) { return generations.emplace_back(std::make_shared<FakeGeneration>()); }, std::move(alive));
  EXPECT_FALSE(watch.expired());
  say("a", FinishReason::kLength);
  EXPECT_TRUE(watch.expired()) << "the session outlives its answer";
}

}  // namespace
}  // namespace quire
