#include "engine/admission.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace quire {
namespace {

constexpr AdmissionLimits kLimits{256, 4096, 1000, 20};

struct Verdict {
  std::string param, message;
};

Verdict admit(const std::function<void(GenerateRequest&)>& change, GenerateRequest* result = nullptr) {
  GenerateRequest request;
  request.prompt_ids = {1, 2, 3};
  change(request);
  try {
    admit_request(request, kLimits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return {error.param(), error.what()};
  }
  if (result != nullptr) *result = request;
  return {"", "accepted"};
}

TEST(Admission, RefusesWhatIsOutOfRangeAndNamesIt) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, std::function<void(SamplingParams&)>>> table = {
      {"n", [](auto& p) { p.n = 0; }},
      {"n", [](auto& p) { p.n = 129; }},
      {"n",
       [](auto& p) {
         p.n = 2;
         p.temperature = 0;
       }},
      {"temperature", [](auto& p) { p.temperature = -0.1; }},
      {"temperature", [](auto& p) { p.temperature = 2.1; }},
      {"temperature", [=](auto& p) { p.temperature = kNan; }},
      {"top_p", [](auto& p) { p.top_p = 0; }},
      {"top_p", [](auto& p) { p.top_p = 1.1; }},
      {"top_k", [](auto& p) { p.top_k = -2; }},
      {"min_p", [](auto& p) { p.min_p = -0.1; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 2.5; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -2.5; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", [=](auto& p) { p.repetition_penalty = kInfinity; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 1e-320; }},  // 0 in single precision
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 1e300; }},
      {"logprob_token_ids", [](auto& p) { p.logprob_token_ids = {1000}; }},
      {"logprob_token_ids", [](auto& p) { p.logprob_token_ids.resize(129); }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{1000, 1.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{-1, 1.0f}};
       }},
      {"allowed_token_ids", [](auto& p) { p.allowed_token_ids = {1000}; }},
      {"bad_words", [](auto& p) { p.bad_words = {{}}; }},
      {"bad_words",
       [](auto& p) {
         p.bad_words = {{1, 1000}};
       }},
      {"stop",
       [](auto& p) {
         p.stop = {"a", "b", "c", "d", "e"};
       }},
      {"stop", [](auto& p) { p.stop = {""}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {1000}; }},
      {"logprobs", [](auto& p) { p.logprobs = 21; }},
      {"logprobs", [](auto& p) { p.logprobs = -2; }},
      {"logprobs", [](auto& p) { p.logprobs = -1; }},
      {"prompt_logprobs", [](auto& p) { p.prompt_logprobs = 21; }},
      {"max_tokens", [](auto& p) { p.max_tokens = -1; }},
      {"max_tokens", [](auto& p) { p.max_tokens = 257; }},
      {"min_tokens", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens",
       [](auto& p) {
         p.min_tokens = 8;
         p.max_tokens = 7;
       }},
      {"min_tokens", [](auto& p) { p.min_tokens = 254; }},  // max_tokens is null: the room left counts
  };
  for (const auto& [param, change] : table) {
    const Verdict verdict = admit([&apply = change](GenerateRequest& r) { apply(r.params); });
    EXPECT_EQ(verdict.param, param) << verdict.message;
    EXPECT_NE(verdict.message.find(param), std::string::npos) << verdict.message;
  }
}

TEST(Admission, PromptsHaveToFit) {
  EXPECT_EQ(admit([](auto& r) { r.prompt_ids.clear(); }).param, "prompt");
  EXPECT_EQ(admit([](auto& r) { r.prompt_ids = {1000}; }).param, "prompt");
  EXPECT_EQ(admit([](auto& r) { r.prompt_ids = {-1}; }).param, "prompt");
  const Verdict verdict = admit([](auto& r) { r.prompt_ids.assign(256, 1); });
  EXPECT_NE(
      verdict.message.find("maximum context length is 256 tokens. However, your prompt contains 256 input tokens"),
      std::string::npos);
  EXPECT_EQ(admit([](auto& r) { r.prompt_ids.assign(255, 1); }).message, "accepted");
  EXPECT_EQ(admit([](auto& r) {
              r.prompt_ids.assign(256, 1);
              r.params.max_tokens = 0;
            }).message,
            "accepted");
}

TEST(Admission, FillsInWhatIsOpen) {
  GenerateRequest request;
  admit([](auto& r) { r.params.logit_bias = {{1, 1e9f}, {2, -1e9f}}; }, &request);
  EXPECT_EQ(request.params.max_tokens, 253);
  EXPECT_EQ(request.params.logit_bias[0].second, 100.0f);
  EXPECT_EQ(request.params.logit_bias[1].second, -100.0f);
  admit([](auto& r) { r.params.max_tokens = 256; }, &request);
  EXPECT_EQ(request.params.max_tokens, 253) << "clamped to the room left";
}

TEST(Admission, ARequestMustFitTheWholePool) {
  GenerateRequest request;
  request.prompt_ids.assign(50, 1);
  request.params.max_tokens = 51;
  const AdmissionLimits small{256, 100, 1000, 20};
  try {
    admit_request(request, small);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "max_tokens");
  }
}

}  // namespace
}  // namespace quire
