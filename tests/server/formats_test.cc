// Answers in the shapes of /v1/messages and /v1/responses from scripted engine events; the routes' description.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fakes.h"
#include "server/generation_session.h"
#include "server/json_body.h"
#include "server/json_errors.h"
#include "server/messages.h"
#include "server/openai_chat.h"
#include "server/openapi.h"
#include "server/responses.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

class Formats : public testing::Test {
 protected:
  AnswerContext context() {
    AnswerContext c;
    c.id = "id_1";
    c.model = "m";
    c.created = 7;
    c.fields = fields;
    c.tokenizer = &tokenizer;
    c.role = "assistant";
    c.fingerprint = "quire-0";
    return c;
  }
  void start(std::unique_ptr<AnswerFormat> format) {
    GenerationSession::start(
        exchange, std::move(format), {{tokenizer.encode("hi", true), ""}}, {},
        [this](GenerateRequest) { return generation = std::make_shared<FakeGeneration>(); }, nullptr);
  }
  void start_message() { start(std::make_unique<MessagesAnswer>(context())); }
  void start_response() { start(std::make_unique<ResponsesAnswer>(context(), R"(,"metadata":{"a":"b"})")); }
  void say(std::string_view text, FinishReason last) {
    for (size_t i = 0; i < text.size(); ++i) {
      generation->step(
          {token_event(static_cast<unsigned char>(text[i]), 0, i + 1 == text.size() ? last : FinishReason::kNone)});
    }
  }
  void fail(ErrorKind kind = ErrorKind::kInternal) {
    GenerationEvent event = token_event(-1, 0, FinishReason::kError);
    event.error = "broken";
    event.error_kind = kind;
    generation->step({event});
  }
  Json body() const { return Json::parse(exchange->whole.body); }
  // Each has the name that its data calls itself.
  std::vector<Json> events() const {
    std::vector<Json> out;
    std::string_view rest = exchange->stream;
    while (!rest.empty()) {
      const size_t line = rest.find('\n'), end = rest.find("\n\n");
      EXPECT_TRUE(rest.starts_with("event: ") && rest.substr(line + 1).starts_with("data: ")) << rest;
      if (end == std::string_view::npos) break;
      out.push_back(Json::parse(rest.substr(line + 7, end - line - 7)));
      EXPECT_EQ(out.back()["type"], rest.substr(7, line - 7));
      rest.remove_prefix(end + 2);
    }
    return out;
  }
  std::vector<std::string> types() const {
    std::vector<std::string> out;
    for (const Json& event : events()) out.push_back(event["type"]);
    return out;
  }

  ByteTokenizer tokenizer;
  GenerationFields fields;
  std::shared_ptr<FakeExchange> exchange = std::make_shared<FakeExchange>();
  std::shared_ptr<FakeGeneration> generation;
};

TEST_F(Formats, WholeMessage) {
  start_message();
  say("yes", FinishReason::kLength);
  EXPECT_EQ(body(),
            Json::parse(R"({"id":"id_1","type":"message","role":"assistant","content":[{"type":"text","text":"yes"}],
    "model":"m","stop_reason":"max_tokens","stop_sequence":null,
    "usage":{"input_tokens":2,"output_tokens":3,"cache_creation_input_tokens":null,"cache_read_input_tokens":null}})"));
}

TEST_F(Formats, StreamedMessage) {
  fields.stream = true;
  fields.params.stop = {"!"};
  start_message();
  EXPECT_EQ(types(), (std::vector<std::string>{"message_start", "content_block_start", "ping"})) << "before any token";
  EXPECT_EQ(events()[0]["message"]["usage"]["input_tokens"], 2);
  say("ok!", FinishReason::kNone);
  const auto all = events();
  ASSERT_EQ(all.size(), 8u) << exchange->stream;
  EXPECT_EQ(all[3],
            Json::parse(R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"o"}})"));
  EXPECT_EQ(all[5]["type"], "content_block_stop");
  EXPECT_EQ(all[6]["delta"], Json::parse(R"({"stop_reason":"stop_sequence","stop_sequence":"!"})"));
  EXPECT_EQ(all[6]["usage"]["output_tokens"], 3);
  EXPECT_EQ(all[7], Json::parse(R"({"type":"message_stop"})"));
}

TEST_F(Formats, FailedMessage) {
  start_message();
  fail();
  EXPECT_EQ(exchange->whole.status, 500);
  EXPECT_EQ(body(), Json::parse(R"({"type":"error","error":{"type":"api_error","message":"broken"}})"));

  exchange = std::make_shared<FakeExchange>();
  fields.stream = true;
  start_message();
  fail(ErrorKind::kInvalidArgument);
  EXPECT_EQ(events().back(),
            Json::parse(R"({"type":"error","error":{"type":"invalid_request_error","message":"broken"}})"));
  EXPECT_TRUE(exchange->done);
}

TEST_F(Formats, WholeResponse) {
  start_response();
  say("yes", FinishReason::kStop);
  Json answer = body();
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["metadata"], Json::parse(R"({"a":"b"})"));
  EXPECT_EQ(answer["output"][0]["content"],
            Json::parse(R"([{"type":"output_text","text":"ye","annotations":[],"logprobs":[]}])"));
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
}

TEST_F(Formats, StreamedResponse) {
  fields.stream = true;
  start_response();
  say("ok", FinishReason::kLength);
  EXPECT_EQ(types(),
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                "response.output_text.delta", "response.output_text.delta", "response.output_text.done",
                "response.content_part.done", "response.output_item.done", "response.completed"}));
  const auto all = events();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["sequence_number"], i);
  EXPECT_EQ(all[0]["response"]["status"], "in_progress");
  EXPECT_EQ(all[6]["text"], "ok");
  EXPECT_EQ(all[6]["item_id"], all[2]["item"]["id"]);
  EXPECT_EQ(all[9]["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(all[9]["response"]["output"][0]["content"][0]["text"], "ok");
}

TEST_F(Formats, FailedResponse) {
  fields.stream = true;
  start_response();
  fail();
  const Json last = events().back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["error"], Json::parse(R"({"code":"server_error","message":"broken"})"));
}

TEST_F(Formats, TheLastChunkHasTheFingerprint) {
  for (const bool usage : {false, true}) {
    exchange = std::make_shared<FakeExchange>();
    fields.stream = true;
    fields.include_usage = usage;
    start(std::make_unique<ChatAnswer>(context()));
    say("ok", FinishReason::kLength);
    const std::string& stream = exchange->stream;
    const size_t at = stream.find("system_fingerprint");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(stream.find("system_fingerprint", at + 1), std::string::npos) << stream;
    EXPECT_GT(at, stream.find(usage ? "\"choices\":[]" : "\"finish_reason\":\"length\""));
  }
}

std::string param_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error_status(error), 400);
    return error.param();
  }
  return "none";
}

TEST(MessagesFields, AreThoseOfAChat) {
  const ChatFields read = read_messages_fields(
      parse_json_object(R"({"model":"m","max_tokens":5,"stop_sequences":["x"],"system":[{"type":"text","text":"s"}],
      "messages":[{"role":"user","content":"u"},
                  {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"}]}]})"),
      {}, {}, false);
  EXPECT_EQ(read.params.max_tokens, 5);
  EXPECT_EQ(read.params.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(read.continue_final_message && !read.add_generation_prompt);
  EXPECT_EQ(*read.messages, Json::parse(R"([{"role":"system","content":[{"type":"text","text":"s"}]},
    {"role":"user","content":"u"},{"role":"assistant","content":[{"type":"text","text":"a"}]}])"));
}

TEST(MessagesFields, ToolsAreShownWhereNoneIsToBeCalled) {
  const std::string body = R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"u"}],
    "tools":[{"name":"f","input_schema":{"type":"object"}}])";
  EXPECT_EQ(param_of([&] { read_messages_fields(parse_json_object(body + "}"), {}, {}, false); }), "tools");
  const ChatFields read =
      read_messages_fields(parse_json_object(body + R"(,"tool_choice":{"type":"none"}})"), {}, {}, false);
  ASSERT_TRUE(read.tools);
  EXPECT_EQ((*read.tools)[0]["function"]["name"], "f");
  EXPECT_TRUE(read_messages_fields(parse_json_object(body + "}"), {}, {}, true).tools) << "they count";
}

TEST(ResponsesFields, AreThoseOfAChat) {
  const ResponsesFields read = read_responses_fields(
      parse_json_object(
          R"({"input":[{"type":"reasoning","summary":[]},{"role":"user","content":"u"}],"instructions":"i",
      "reasoning":{"effort":"low"},"truncation":"auto","max_output_tokens":9,"include":["message.output_text.logprobs"],
      "top_logprobs":2,"store":true})"),
      {}, {});
  EXPECT_EQ(*read.messages, Json::parse(R"([{"role":"system","content":"i"},{"role":"user","content":"u"}])"));
  EXPECT_EQ((*read.template_values)["reasoning_effort"], "low");
  EXPECT_EQ(read.truncate_prompt_tokens, -1);
  EXPECT_EQ(read.params.max_tokens, 9);
  EXPECT_EQ(read.params.logprobs, 2);
  const Json echo = Json::parse("{" + read.echo.substr(1) + "}");
  EXPECT_EQ(echo["store"], false) << "said to have no effect";
  EXPECT_EQ(echo["instructions"], "i");
}

TEST(OpenApi, DescribesTheRoutesThatAreThere) {
  const std::vector<Route> routes = {{{"GET"}, "/version", {}}, {{"GET", "POST"}, "/new", {}}};
  const Json described = describe_routes(routes, "/llm");
  EXPECT_EQ(described["servers"][0]["url"], "/llm");
  EXPECT_EQ(described["paths"].size(), 2u);
  EXPECT_TRUE(described["paths"]["/version"]["get"].contains("summary"));
  EXPECT_TRUE(described["paths"]["/new"].contains("post"));
  const std::string page = docs_page(described);
  EXPECT_NE(page.find("<b>GET</b> <code>/version</code>"), std::string::npos);
}

TEST(OpenApi, ReferencesLeadSomewhere) {
  const Json description = Json::parse(openapi_source());
  const std::function<void(const Json&)> look = [&](const Json& node) {
    if (node.is_object() && node.contains("$ref")) {
      EXPECT_TRUE(description.contains(Json::json_pointer(node["$ref"].get<std::string>().substr(1)))) << node["$ref"];
    }
    if (node.is_structured()) std::ranges::for_each(node, look);
  };
  look(description);
  for (const auto& [path, methods] : description["paths"].items()) {
    std::vector<Route> one = {{{}, path, {}}};
    EXPECT_NE(docs_page(describe_routes(one, "")), "");
  }
}

}  // namespace
}  // namespace quire
