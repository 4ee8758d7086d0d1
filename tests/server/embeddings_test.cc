// /v1/embeddings without a model: fields, vectors, and a session over scripted generations.
#include "server/embeddings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <new>
#include <nlohmann/json.hpp>

#include "fakes.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

constexpr int64_t kHidden = 4;

EmbeddingFields read(const std::string& body, const EngineConfig& engine = {}) {
  return read_embedding_fields(parse_json_object(body), engine, ServerConfig(), kHidden);
}

TEST(EmbeddingFields, InputsAreTextsIdsOrAConversation) {
  EXPECT_EQ(read(R"({"input":"a b"})").inputs.at(0).text, "a b");
  EXPECT_EQ(read(R"({"input":["a","b"]})").inputs.at(1).text, "b");
  EXPECT_EQ(read(R"({"input":[1,2]})").inputs.at(0).ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(read(R"({"input":[[1],[2,3]]})").inputs.at(1).ids, (std::vector<int32_t>{2, 3}));
  const EmbeddingFields chat = read(R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_TRUE(chat.conversation.has_value());
  EXPECT_FALSE(chat.conversation->add_generation_prompt);
  EXPECT_TRUE(chat.inputs.empty());
}

TEST(EmbeddingFields, DefaultsAreTheServers) {
  EngineConfig engine;
  engine.normalize_embeddings = false;
  EXPECT_FALSE(read(R"({"input":"a"})", engine).normalize);
  EXPECT_TRUE(read(R"({"input":"a","normalize":true})", engine).normalize);
  const EmbeddingFields plain = read(R"({"input":"a","user":"u","encoding_format":null,"dimensions":null})");
  EXPECT_TRUE(plain.normalize);
  EXPECT_FALSE(plain.base64);
  EXPECT_FALSE(plain.dimensions.has_value());
  EXPECT_TRUE(read(R"({"input":"a","encoding_format":"base64"})").base64);
}

TEST(EmbeddingFields, WhatIsOutOfRangeIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "input"},
      {R"({"input":null})", "input"},
      {R"({"input":{}})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":["a",1]})", "input"},
      {R"({"input":[1.5]})", "input"},
      {R"({"input":"a","messages":[{"role":"user","content":"a"}]})", "input"},
      {R"({"messages":[]})", "messages"},
      {R"({"input":"a","encoding_format":"bytes"})", "encoding_format"},
      {R"({"input":"a","encoding_format":1})", "encoding_format"},
      {R"({"input":"a","embed_dtype":"float16"})", "embed_dtype"},
      {R"({"input":"a","endianness":"big"})", "endianness"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":5})", "dimensions"},
      {R"({"input":"a","dimensions":"2"})", "dimensions"},
      {R"({"input":"a","truncate_prompt_tokens":-2})", "truncate_prompt_tokens"},
      {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"input":"a","truncation_side":"middle"})", "truncation_side"},
      {R"({"input":"a","cache_salt":""})", "cache_salt"},
  };
  for (const auto& [body, param] : kCases) {
    try {
      read(body);
      ADD_FAILURE() << body;
    } catch (const Error& error) {
      EXPECT_EQ(error.param(), param) << body;
      EXPECT_EQ(error_status(error), 400) << body;
    }
  }
  std::string many = R"({"input":["a")";
  for (int i = 0; i < 2048; ++i) many += R"(,"a")";
  EXPECT_THROW(read(many + "]}"), Error);
}

TEST(EmbeddingFields, AnAnswerThatWouldBeTooLargeIsRefused) {
  const auto read_many = [](int inputs, const std::string& rest) {
    std::string body = R"({"input":["a")";
    for (int i = 1; i < inputs; ++i) body += R"(,"a")";
    return read_embedding_fields(parse_json_object(body + "]" + rest + "}"), EngineConfig(), ServerConfig(), 4096);
  };
  EXPECT_NO_THROW(read_many(1170, ""));
  EXPECT_NO_THROW(read_many(2048, R"(,"encoding_format":"base64")"));
  EXPECT_NO_THROW(read_many(2048, R"(,"dimensions":1024)"));
  try {
    read_many(1171, "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(error.param(), "input");
    EXPECT_NE(std::string(error.what()).find("67108864"), std::string::npos) << error.what();
  }
}

TEST(Embeddings, VectorsAreCutThenNormalized) {
  const std::vector<float> state = {3, 4, 12, 0};
  EXPECT_EQ(finish_embedding(state, {}, false), state);
  EXPECT_EQ(finish_embedding(state, 2, false), (std::vector<float>{3, 4}));
  EXPECT_EQ(finish_embedding(state, 2, true), (std::vector<float>{0.6f, 0.8f}));
  const std::vector<float> unit = finish_embedding(state, {}, true);
  for (size_t i = 0; i < state.size(); ++i) EXPECT_FLOAT_EQ(unit[i], state[i] / 13.0f);
  EXPECT_EQ(finish_embedding(std::vector<float>{0, 0}, {}, true), (std::vector<float>{0, 0}));
}

TEST(Embeddings, JsonGivesTheFloatsBack) {
  const std::vector<float> values = {0.1f, -1e-7f, 3.4e38f, 1, -0.0f, 1e-45f, 16777216};
  const auto parsed = nlohmann::json::parse(embedding_json(values, false)).get<std::vector<double>>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(static_cast<float>(parsed[i]), values[i]);
  EXPECT_EQ(embedding_json(std::vector<float>{1, 2}, true), "\"AACAPwAAAEA=\"");
  EXPECT_EQ(embedding_json(std::vector<float>{1}, true), "\"AACAPw==\"");
  EXPECT_EQ(embedding_json(std::vector<float>{}, true), "\"\"");
}

class FakeEmbedding final : public FakeGeneration {
 public:
  std::span<const float> embedding() const override { return state; }
  std::vector<float> state;
};

class EmbeddingSessionTest : public testing::Test {
 protected:
  void start(size_t inputs) {
    EmbeddingSession::Task task;
    task.id = "embd-1";
    task.model = "m";
    task.fields.normalize = false;
    task.draining = &draining_;
    for (size_t i = 0; i < inputs; ++i) task.ids.push_back({static_cast<int32_t>(i), 7});
    EmbeddingSession::start(
        exchange_, std::move(task),
        [this](GenerateRequest request) -> std::shared_ptr<Generation> {
          if (generations_.size() == refuse_at_) throw Error(ErrorKind::kUnavailable, "the queue is full");
          EXPECT_EQ(request.prompt_ids.at(0), static_cast<int32_t>(generations_.size()));
          EXPECT_EQ(request.pooling, Pooling::kLast);
          generations_.push_back(std::make_shared<FakeEmbedding>());
          return generations_.back();
        },
        std::shared_ptr<void>(nullptr, [this](void*) { over_ = true; }));
  }
  void end(size_t i, FinishReason reason = FinishReason::kStop, ErrorKind error_kind = ErrorKind::kInternal) {
    generations_[i]->state = {static_cast<float>(i), 0.5f};
    GenerationEvent event = token_event(-1, 0, reason);
    event.error_kind = error_kind;
    generations_[i]->step({std::move(event)});
  }
  nlohmann::json answer() const { return nlohmann::json::parse(exchange_->whole.body); }

  std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  std::vector<std::shared_ptr<FakeEmbedding>> generations_;
  size_t refuse_at_ = SIZE_MAX;
  std::atomic<bool> draining_{false};
  bool over_ = false;
};

TEST_F(EmbeddingSessionTest, AnswersComeInTheOrderOfTheInputs) {
  start(3);
  ASSERT_EQ(generations_.size(), 3u);
  end(2);
  end(0);
  EXPECT_FALSE(exchange_->done);
  end(1);
  ASSERT_TRUE(exchange_->done);
  EXPECT_TRUE(over_);
  const nlohmann::json json = answer();
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "m");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["data"][i]["index"], i);
    EXPECT_EQ(json["data"][i]["object"], "embedding");
    EXPECT_EQ(json["data"][i]["embedding"], (std::vector<double>{static_cast<double>(i), 0.5}));
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["total_tokens"], 6);
}

TEST_F(EmbeddingSessionTest, ALongListIsSubmittedBitByBit) {
  const size_t inputs = 2 * EmbeddingSession::kAtOnce + 5;
  start(inputs);
  EXPECT_EQ(generations_.size(), EmbeddingSession::kAtOnce);
  end(0);
  EXPECT_EQ(generations_.size(), EmbeddingSession::kAtOnce + 1);
  for (size_t i = 1; i < inputs; ++i) end(i);
  EXPECT_EQ(answer()["data"].size(), inputs);
}

TEST_F(EmbeddingSessionTest, AFailureEndsTheOthers) {
  start(3);
  end(1, FinishReason::kError);
  EXPECT_EQ(exchange_->whole.status, 500);
  EXPECT_EQ(generations_[0]->cancelled, 1);
  EXPECT_EQ(generations_[2]->cancelled, 1);
  end(0);  // comes too late
  EXPECT_TRUE(over_);
}

TEST_F(EmbeddingSessionTest, AFailureHasTheStatusOfItsKind) {
  start(1);
  end(0, FinishReason::kError, ErrorKind::kUnavailable);
  EXPECT_EQ(exchange_->whole.status, 503);
}

TEST_F(EmbeddingSessionTest, WhatCannotBeSubmittedIsAnAnswer) {
  refuse_at_ = 0;
  start(2);
  EXPECT_EQ(exchange_->whole.status, 503);
}

TEST_F(EmbeddingSessionTest, AFullQueueIsTriedAgainWhenOneOfOursEnds) {
  refuse_at_ = 2;
  start(3);
  ASSERT_EQ(generations_.size(), 2u);
  EXPECT_FALSE(exchange_->done);
  refuse_at_ = SIZE_MAX;
  end(0);
  ASSERT_EQ(generations_.size(), 3u);
  end(1);
  end(2);
  ASSERT_EQ(exchange_->whole.status, 200);
  EXPECT_EQ(answer()["data"].size(), 3u);
  EXPECT_EQ(answer()["usage"]["prompt_tokens"], 6);
}

TEST_F(EmbeddingSessionTest, AtShutdownNothingIsTriedAgain) {
  refuse_at_ = 1;
  draining_ = true;
  start(2);
  EXPECT_EQ(exchange_->whole.status, 503);
  EXPECT_EQ(generations_[0]->cancelled, 1);
}

// An exchange whose every answer runs out of memory.
class PoorExchange final : public FakeExchange {
 public:
  void respond(HttpResponse) override { throw std::bad_alloc(); }
};

TEST_F(EmbeddingSessionTest, WithoutMemoryForTheErrorTheExchangeIsLetGo) {
  exchange_ = std::make_shared<PoorExchange>();
  start(2);
  EXPECT_EQ(exchange_.use_count(), 2);
  end(0, FinishReason::kError);
  EXPECT_EQ(exchange_.use_count(), 1);
  EXPECT_EQ(generations_[1]->cancelled, 2) << "by both tries to tell of the error";
  end(1);  // comes too late
}

TEST_F(EmbeddingSessionTest, AClientThatGoesCancels) {
  start(2);
  std::exchange(exchange_->disconnect, nullptr)();  // once, as a connection does
  EXPECT_EQ(generations_[0]->cancelled, 1);
  EXPECT_EQ(generations_[1]->cancelled, 1);
  end(0);
  EXPECT_FALSE(exchange_->done);
}

}  // namespace
}  // namespace quire
