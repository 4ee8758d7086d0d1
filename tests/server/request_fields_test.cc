// What a request body may say, and which field an error names.
#include "server/request_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/http_head.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

CompletionFields completion(const std::string& more, const GenerationConfig& defaults = {}) {
  return read_completion_fields(
      parse_json_object(R"({"model":"m","prompt":"hi")" + (more.empty() ? "" : "," + more) + "}"), defaults, {});
}
ChatFields chat(const std::string& more, const ServerConfig& config = {}) {
  return read_chat_fields(
      parse_json_object(R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}"), {},
      config);
}
// The param of the error, or "none".
template <typename Call>
std::string param_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error_status(error), 400) << error.what();
    return error.param();
  }
  return "none";
}

TEST(RequestFields, Defaults) {
  const CompletionFields c = completion("");
  EXPECT_EQ(c.params.max_tokens, 16);
  EXPECT_EQ(c.params.temperature, 1.0);
  EXPECT_EQ(c.params.n, 1);
  EXPECT_FALSE(c.params.seed || c.params.logprobs || c.stream || c.echo);
  EXPECT_TRUE(c.add_special_tokens && c.params.skip_special_tokens);
  const ChatFields h = chat("");
  EXPECT_FALSE(h.params.max_tokens.has_value()) << "the rest of the context";
  EXPECT_FALSE(h.add_special_tokens);
  EXPECT_TRUE(h.add_generation_prompt);
}

TEST(RequestFields, GenerationConfigThenRequest) {
  GenerationConfig file;
  file.temperature = 0.6;
  file.top_k = 20;
  file.max_new_tokens = 99;
  const CompletionFields c = completion(R"("top_k":5)", file);
  EXPECT_EQ(c.params.temperature, 0.6);
  EXPECT_EQ(c.params.top_k, 5);
  EXPECT_EQ(c.params.max_tokens, 16);
  EXPECT_EQ(completion(R"("max_tokens":null)", file).params.max_tokens, 99);
}

TEST(RequestFields, MaxTokens) {
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":7)").params.max_tokens, 7);
  EXPECT_EQ(chat(R"("max_tokens":5)").params.max_tokens, 5);
  EXPECT_EQ(chat(R"("max_tokens":16.0)").params.max_tokens, 16);
  EXPECT_FALSE(chat(R"("max_tokens":null)").params.max_tokens.has_value());
  EXPECT_EQ(param_of([] { completion(R"("max_tokens":0)"); }), "max_tokens");
  EXPECT_EQ(completion(R"("max_tokens":0,"echo":true)").params.max_tokens, 0);
}

TEST(RequestFields, EveryValueIsTaken) {
  const CompletionFields c = completion(
      R"("n":3,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.2,"seed":9,
      "logit_bias":{"5":-100,"7":1.5},"allowed_token_ids":[1,2],"bad_words":["x"],"min_tokens":2,"stop":"a","stop_token_ids":[3],"ignore_eos":true,
      "include_stop_str_in_output":true,"skip_special_tokens":false,"logprobs":4,"prompt_logprobs":2,"priority":-3,"cache_salt":"s",
      "return_token_ids":true,"add_special_tokens":false,"truncate_prompt_tokens":-1,"truncation_side":"right","user":"u","suffix":null,"best_of":3)");
  EXPECT_EQ(c.params.n, 3);
  EXPECT_EQ(c.params.temperature, 0.5);
  EXPECT_EQ(c.params.top_k, -1);
  EXPECT_EQ(c.params.seed, 9);
  EXPECT_EQ(c.params.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100}, {7, 1.5f}}));
  EXPECT_EQ(c.params.allowed_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(c.bad_words, std::vector<std::string>{"x"});
  EXPECT_EQ(c.params.min_tokens, 2);
  EXPECT_EQ(c.params.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(c.params.stop_token_ids, std::vector<int32_t>{3});
  EXPECT_TRUE(c.params.ignore_eos && c.params.include_stop_str_in_output && !c.params.skip_special_tokens);
  EXPECT_EQ(c.params.logprobs, 4);
  EXPECT_EQ(c.params.prompt_logprobs, 2);
  EXPECT_TRUE(c.return_prompt_logprobs && c.return_token_ids && !c.add_special_tokens && !c.truncate_from_left);
  EXPECT_EQ(c.priority, -3);
  EXPECT_EQ(c.cache_salt, "s");
  EXPECT_FALSE(completion(R"("seed":-1)").params.seed.has_value());
  EXPECT_EQ(completion(R"("seed":9223372036854775807)").params.seed, INT64_MAX);
}

TEST(RequestFields, ErrorsNameTheField) {
  const std::pair<const char*, const char*> table[] = {
      {R"("max_tokens":"16")", "max_tokens"},
      {R"("max_tokens":true)", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("seed":9223372036854775808)", "seed"},
      {R"("seed":1e30)", "seed"},
      {R"("seed":"7")", "seed"},
      {R"("seed":1.5)", "seed"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("n":1000000000000)", "n"},
      {R"("temperature":"hot")", "temperature"},
      {R"("top_k":[1])", "top_k"},
      {R"("stop":5)", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("stop_token_ids":"5")", "stop_token_ids"},
      {R"("stop_token_ids":["5"])", "stop_token_ids"},
      {R"("stop_token_ids":[99999999999])", "stop_token_ids"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("logit_bias":{"abc":1})", "logit_bias"},
      {R"("logit_bias":{"5":"x"})", "logit_bias"},
      {R"("logit_bias":{"99999999999":1})", "logit_bias"},
      {R"("allowed_token_ids":[])", "allowed_token_ids"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "include_usage"},
      {R"("stream":true,"prompt_logprobs":1)", "prompt_logprobs"},
      {R"("echo":1)", "echo"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("response_format":{})", "response_format"},
      {R"("response_format":"json")", "response_format"},
      {R"("structured_outputs":{"regex":"a"})", "structured_outputs"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("suffix":"x")", "suffix"},
      {R"("cache_salt":"")", "cache_salt"},
      {R"("cache_salt":"a/b")", "cache_salt"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
      {R"("truncation_side":"up")", "truncation_side"},
      {R"("prompt":[])", "prompt"},
      {R"("prompt":[1,"a"])", "prompt"},
      {R"("prompt":["a",{}])", "prompt"},
      {R"("prompt":[true])", "prompt"},
      {R"("prompt":{})", "prompt"},
      {R"("prompt":null)", "prompt"},
  };
  for (const auto& [more, param] : table) EXPECT_EQ(param_of([&] { completion(more); }), param) << more;
  EXPECT_EQ(
      param_of([] {
        completion(
            R"("response_format":{"type":"text"},"foo":{"a":[1]},"guided_json":{},"stop":null,"use_beam_search":false)");
      }),
      "none");
}

TEST(RequestFields, Prompts) {
  EXPECT_EQ(completion(R"("prompt":["a","b"])").prompts.size(), 2u);
  EXPECT_EQ(completion(R"("prompt":[1,2])").prompts[0].ids, (std::vector<int32_t>{1, 2}));
  const auto lists = completion(R"("prompt":[[1],[2,3]])").prompts;
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[1].ids, (std::vector<int32_t>{2, 3}));
  std::string many = R"("prompt":["")";
  for (int i = 0; i < 1024; ++i) many += ",\"\"";
  EXPECT_EQ(param_of([&] { completion(many + "]"); }), "prompt");
}

TEST(RequestFields, ChatErrors) {
  const std::pair<const char*, const char*> table[] = {
      {R"("messages":"x")", "messages"},
      {R"("messages":[])", "messages"},
      {R"("messages":[1])", "messages"},
      {R"("messages":[{"content":"a"}])", "messages"},
      {R"("messages":[{"role":"robot","content":"a"}])", "messages"},
      {R"("messages":[{"role":"user"}])", "messages"},
      {R"("messages":[{"role":"user","content":5}])", "messages"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}])", "messages"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("logprobs":1)", "logprobs"},
      {R"("tools":[])", "tools"},
      {R"("tools":[{"type":"function"}])", "tools"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message"},
      {R"("chat_template":"x")", "chat_template"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("documents":{})", "documents"},
      {R"("max_tokens":0)", "max_tokens"},
  };
  for (const auto& [more, param] : table) EXPECT_EQ(param_of([&] { chat(more); }), param) << more;
}

TEST(RequestFields, ChatValues) {
  ServerConfig config;
  config.default_chat_template_kwargs = R"({"a":1,"b":2})";
  config.trust_request_chat_template = true;
  const ChatFields h = chat(
      R"("chat_template_kwargs":{"b":3},"logprobs":true,"chat_template":"{{ x }}","tools":[{"type":"function"}],"tool_choice":"none",
      "messages":[{"role":"user","content":[{"type":"text","text":"p"},"q"]},
                  {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"z\":1}"}}]},
                  {"role":"tool","tool_call_id":"1","content":"r"}])",
      config);
  EXPECT_EQ(*h.template_values, Json::parse(R"({"a":1,"b":3})"));
  EXPECT_EQ(h.params.logprobs, 0);
  EXPECT_EQ(h.chat_template, "{{ x }}");
  ASSERT_TRUE(h.tools);
  EXPECT_EQ((*h.messages)[0]["content"], Json::parse(R"([{"type":"text","text":"p"},{"type":"text","text":"q"}])"));
  EXPECT_EQ((*h.messages)[1]["tool_calls"][0]["function"]["arguments"], Json::parse(R"({"z":1})"));
  EXPECT_EQ((*h.messages)[2]["tool_call_id"], "1");
  EXPECT_FALSE(chat(R"("continue_final_message":true)").add_generation_prompt);
}

TEST(RequestFields, ForcedUsage) {
  ServerConfig config;
  config.enable_force_include_usage = true;
  EXPECT_TRUE(chat(R"("stream":true)", config).include_usage);
  EXPECT_FALSE(chat("", config).include_usage);
}

TEST(JsonBody, Limits) {
  const auto fails = [](const std::string& text) { return param_of([&] { parse_json_object(text); }) != "none"; };
  EXPECT_FALSE(fails(R"({"a":"\u0000\ud83d\ude00"})"));
  EXPECT_TRUE(fails("{\"a\":\"\xC4\xE3\"}"));
  EXPECT_TRUE(fails(R"({"a":"\ud800"})"));
  EXPECT_TRUE(fails(R"({"a":"\udc49x"})"));
  EXPECT_TRUE(fails("{\"a\":\"\x01\"}"));
  EXPECT_TRUE(fails(R"({"a":1e999})"));
  EXPECT_TRUE(fails("[]"));
  EXPECT_TRUE(fails(""));
  EXPECT_TRUE(fails("{\"a\":" + std::string(100000, '[')));
  EXPECT_FALSE(fails("{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}"));
  std::string wide = "{\"k\":0";
  for (int i = 0; i < 50000; ++i) wide += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_TRUE(fails(wide + "}"));
}

TEST(JsonErrors, Shape) {
  EXPECT_EQ(Json::parse(error_json(invalid_argument("say \"x\"\n", "p"))),
            Json::parse(R"({"error":{"message":"say \"x\"\n","type":"BadRequestError","param":"p","code":400}})"));
  EXPECT_EQ(Json::parse(error_json(Error(ErrorKind::kUnavailable, "full")))["error"]["code"], 503);
  EXPECT_EQ(Json::parse(error_json(validation_error("v")))["error"]["type"], "Bad Request");
  EXPECT_TRUE(Json::parse(error_json(validation_error("v")))["error"]["param"].is_null());
  EXPECT_EQ(json_string("a\xC3"), "\"a\xEF\xBF\xBD\"");
}

TEST(ChunkedDecoder, OneByteAtATime) {
  const std::string whole = "3\r\nabc\r\nA ; x\r\n0123456789\r\n0\r\nT: v\r\n\r\nrest";
  ChunkedDecoder decoder;
  std::string body;
  size_t used = 0;
  while (used < whole.size() && !decoder.done()) {
    std::string_view one = std::string_view(whole).substr(used, 1);
    ASSERT_TRUE(decoder.feed(one, body));
    ++used;
  }
  EXPECT_EQ(body, "abc0123456789");
  EXPECT_EQ(whole.substr(used), "rest");
}

TEST(ChunkedDecoder, RefusesWhatIsNotChunked) {
  for (const char* text : {"\r\n", "-1\r\n", "g\r\n", "3\r\nabcX", "3\r\nabc\rX", "3\nabc", "1000000000000000\r\n",
                           "0\r\nA: \x01\r\n", "3;\x01\r\n"}) {
    ChunkedDecoder decoder;
    std::string body;
    std::string_view input = text;
    EXPECT_FALSE(decoder.feed(input, body)) << text;
  }
}

}  // namespace
}  // namespace quire
