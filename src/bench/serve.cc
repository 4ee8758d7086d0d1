#include "bench/serve.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "bench/console.h"
#include "bench/result_file.h"
#include "bench/serve_answers.h"
#include "bench/serve_report.h"
#include "bench/server_coder.h"
#include "client/load_client.h"
#include "engine/load_tokenizer.h"
#include "engine/parts.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Each connection takes a descriptor; the soft limit is often 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string current_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local)};
}

// The names under which requests and results go.
struct ModelNames {
  std::string in_requests, in_results;
  std::string root;           // what the server loaded it from; may be empty
  int64_t max_model_len = 0;  // 0: the server does not say
};

ModelNames find_model(const ServeOptions& options, const HttpClient& client) {
  ModelNames names{options.served_model_name.empty() ? options.model : options.served_model_name, options.model, {}, 0};
  Json list;
  try {
    list = Json::parse(client.get("/v1/models"), nullptr, false);
  } catch (const Error&) {
    if (names.in_requests.empty()) throw;
  }
  const auto text_at = [](const Json& object, const char* key) {
    const auto field = object.find(key);
    return field != object.end() && field->is_string() ? field->get<std::string>() : std::string();
  };
  const bool listed = list.is_object() && list.contains("data") && list["data"].is_array();
  for (const Json& entry : listed ? list["data"] : Json::array()) {
    if (!entry.is_object()) continue;
    const std::string id = text_at(entry, "id");
    if (id.empty() || (!names.in_requests.empty() && id != names.in_requests)) continue;
    names.root = text_at(entry, "root");
    if (const auto most = entry.find("max_model_len"); most != entry.end() && most->is_number_integer())
      names.max_model_len = *most;
    if (names.in_requests.empty()) say(fmt::format("Model: {} (the first that the server lists)\n", id));
    names.in_requests = id;
    if (names.in_results.empty()) names.in_results = id;
    return names;
  }
  if (names.in_requests.empty()) {
    throw Error(ErrorKind::kUnavailable,
                fmt::format("{} lists no model; name one with --model", client.url_of("/v1/models")), "model");
  }
  if (names.in_results.empty()) names.in_results = names.in_requests;
  return names;
}

// Found before anything is sent: a server would refuse such requests one by one.
void check_lengths(const std::vector<DatasetRequest>& requests, const ModelNames& model) {
  if (model.max_model_len == 0) return;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t total = requests[i].prompt_len + requests[i].output_len;
    if (total <= model.max_model_len) continue;
    throw invalid_argument(fmt::format("prompt {}: {} + {} tokens; the server's limit (max_model_len) is {}", i + 1,
                                       requests[i].prompt_len, requests[i].output_len, model.max_model_len),
                           "input-len");
  }
}

// A tokenizer with what it is made of.
struct Coder {
  std::unique_ptr<Tokenizer> tokenizer;
  ChatFormat chat;
  std::unique_ptr<TextCoder> coder;
  std::optional<std::string> id;
};

void open_local(Coder& out, const std::string& name) {
  out.tokenizer = load_tokenizer(name);
  try {
    out.chat = make_chat_format(open_tokenizer_files(name), "");
  } catch (const Error&) {  // a tokenizer's file alone has no template
  }
  out.coder = local_coder(*out.tokenizer, &out.chat);
  out.id = name;
}

// The tokenizer that was named, else the model's if it is here, else the server's. Where the server counts otherwise
// than the one that is here, the server is right.
void open_coder(Coder& out, const ServeOptions& options, const ModelNames& model, const HttpClient& client) {
  if (!options.tokenizer.empty()) {
    open_local(out, options.tokenizer);
  } else {
    for (const std::string& name : {options.model, model.root}) {
      if (name.empty() || out.coder != nullptr) continue;
      try {
        open_local(out, name);
      } catch (const Error&) {  // the server has it, not this machine
      }
    }
  }
  std::unique_ptr<TextCoder> theirs;
  try {
    theirs = server_coder(client, model.in_requests);
  } catch (const Error& error) {
    if (out.coder == nullptr && needs_coder(options.dataset)) {
      throw Error(ErrorKind::kUnavailable,
                  fmt::format("there is no tokenizer here, and the server's does not answer ({}); give one with "
                              "--tokenizer",
                              error.what()),
                  "tokenizer");
    }
    return;
  }
  const std::string probe = "Two tokenizers count alike: 1234 \u00fcber \u4f60\u597d {}\n";
  if (out.coder != nullptr && out.coder->encode(probe) == theirs->encode(probe) &&
      out.coder->added_tokens() == theirs->added_tokens())
    return;
  if (out.coder != nullptr)
    log_warning(fmt::format("the server's tokenizer differs from that of {}; it is used instead", *out.id));
  out.coder = std::move(theirs);
  out.id = client.url_of("/tokenize");
}

// Requests as the server gets them.
class Messages {
 public:
  Messages(const ServeOptions& options, const ServePlan& plan, const std::string& model)
      : chat_(options.backend == "openai-chat"), embeddings_(options.backend == "openai-embeddings") {
    const auto set = [&](const char* key, const auto& value) {
      if (value) rest_[key] = *value;
    };
    rest_["model"] = model;
    if (!embeddings_) {
      rest_["stream"] = true;
      rest_["stream_options"] = {{"include_usage", true}};
      if (!chat_) rest_["repetition_penalty"] = 1.0;
      set("temperature", options.temperature);
      set("top_p", options.top_p);
      set("top_k", options.top_k);
      set("min_p", options.min_p);
      set("frequency_penalty", options.frequency_penalty);
      set("presence_penalty", options.presence_penalty);
      set("repetition_penalty", options.repetition_penalty);
      if (options.ignore_eos) rest_["ignore_eos"] = true;
      if (options.logprobs && chat_) {
        rest_["logprobs"] = true;
        rest_["top_logprobs"] = *options.logprobs;
      } else {
        set("logprobs", options.logprobs);
      }
      if (!options.chat_template_kwargs.empty())
        rest_["chat_template_kwargs"] = Json::parse(options.chat_template_kwargs);
    }
    if (!options.extra_body.empty()) rest_.update(Json::parse(options.extra_body));
    fixed_ = dump(rest_);
    head_ = fmt::format("POST {}{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: */*\r\n",
                        plan.url.path, plan.endpoint, plan.url.authority());
    if (!options.api_key.empty()) head_ += fmt::format("Authorization: Bearer {}\r\n", options.api_key);
    for (const auto& [name, value] : plan.headers) head_ += fmt::format("{}: {}\r\n", name, value);
  }

  std::string make(const DatasetRequest& request, const std::string& id) const {
    std::string body = "{";
    const char* limit = chat_ ? "max_completion_tokens" : "max_tokens";
    if (!embeddings_ && !rest_.contains(limit)) body += fmt::format("\"{}\":{},", limit, request.output_len);
    const std::string prompt = dump(Json(request.prompt));
    if (chat_) {
      body += fmt::format(R"("messages":[{{"role":"user","content":[{{"type":"text","text":{}}}]}}],)", prompt);
    } else {
      body += fmt::format("\"{}\":{},", embeddings_ ? "input" : "prompt", prompt);
    }
    body.append(fixed_, 1);
    return fmt::format("{}X-Request-Id: {}\r\nContent-Length: {}\r\n\r\n{}", head_, id, body.size(), body);
  }

 private:
  bool chat_, embeddings_;
  Json rest_ = Json::object();
  std::string fixed_, head_;
};

// One run over a list of requests.
class Run final : public LoadClient::Requests {
 public:
  Run(const Messages& messages, const std::vector<DatasetRequest>& requests, AnswerShape shape, std::string id_prefix)
      : messages_(messages), requests_(requests), answers_(shape, requests.size()), id_prefix_(std::move(id_prefix)) {}

  std::string message(size_t index) override {
    return messages_.make(requests_[index], id_prefix_ + std::to_string(index));
  }
  void begin(size_t index, LoadClient::Clock::time_point due, LoadClient::Clock::time_point now) override {
    answers_.begin(index, due, now);
  }
  void answer(size_t index, int status, const std::string& reason) override { answers_.answer(index, status, reason); }
  void body(size_t index, std::string_view bytes, LoadClient::Clock::time_point now) override {
    answers_.body(index, bytes, now);
  }
  void end(size_t index, LoadClient::Clock::time_point now, const std::string& error) override {
    answers_.end(index, now, error);
  }

  // Seconds from start to the last answer.
  double drive(LoadClient& client, const std::vector<double>& due, bool show_progress) {
    ProgressBar bar(show_progress, requests_.size());
    const auto began = LoadClient::Clock::now();
    client.run(due, *this, [&] { bar.show(answers_.ended()); });
    const double seconds = std::chrono::duration<double>(LoadClient::Clock::now() - began).count();
    bar.show(answers_.ended());
    return seconds;
  }
  std::vector<RequestOutcome>& outcomes() { return answers_.outcomes(); }

 private:
  const Messages& messages_;
  const std::vector<DatasetRequest>& requests_;
  ServeAnswers answers_;
  std::string id_prefix_;
};

void wait_until_ready(LoadClient& client, const Messages& messages, const DatasetRequest& request, AnswerShape shape,
                      double timeout, const std::string& id_prefix) {
  constexpr std::chrono::seconds kPause{1};
  const std::vector<DatasetRequest> one = {request};
  const auto deadline = LoadClient::Clock::now() + std::chrono::duration<double>(timeout);
  for (;;) {
    Run run(messages, one, shape, id_prefix + "ready-");
    run.drive(client, {0.0}, false);
    const RequestOutcome& outcome = run.outcomes().front();
    if (outcome.success) return;
    if (LoadClient::Clock::now() + kPause >= deadline) {
      throw Error(ErrorKind::kUnavailable,
                  fmt::format("--ready-check-timeout-sec {}: the server did not answer the first prompt: {}", timeout,
                              outcome.error),
                  "ready-check-timeout-sec");
    }
    std::this_thread::sleep_for(kPause);
  }
}

// Fills in what the server did not count.
void count_tokens(std::vector<RequestOutcome>& outcomes, const std::vector<DatasetRequest>& requests,
                  const TextCoder* coder) {
  for (size_t i = 0; i < outcomes.size(); ++i) {
    RequestOutcome& outcome = outcomes[i];
    if (outcome.prompt_tokens < 0) outcome.prompt_tokens = requests[i].prompt_len;
    if (outcome.output_tokens < 0 && outcome.success) {
      outcome.output_tokens = coder != nullptr ? std::ssize(coder->encode(outcome.text)) : std::ssize(outcome.itls) + 1;
    }
  }
}

void say_failures(const std::vector<RequestOutcome>& outcomes) {
  constexpr int kShown = 10;
  int shown = 0;
  for (const RequestOutcome& outcome : outcomes) {
    if (outcome.success) continue;
    if (shown == 0) say("Failed requests (the first 10):\n");
    if (shown++ == kShown) break;
    say(fmt::format("  {}\n", outcome.error));
  }
}

std::string describe(const Arrivals& arrivals) {
  const std::string shape = fmt::format("burstiness {}", arrivals.burstiness);
  if (!arrivals.ramp_up.empty()) {
    return fmt::format("{} ramp from {} to {} requests/s, {}", arrivals.ramp_up, arrivals.ramp_up_start,
                       arrivals.ramp_up_end, shape);
  }
  if (std::isinf(arrivals.request_rate)) return "all requests at once";
  return fmt::format("{} requests/s, {}", arrivals.request_rate, shape);
}

std::string default_id_prefix() { return fmt::format("bench-{:08x}-", std::random_device()()); }

}  // namespace

void run_serve_benchmark(ServeOptions options) {
  const ServePlan plan = plan_serve_benchmark(options);
  raise_descriptor_limit();
  HttpClient::Options client_options;
  client_options.bearer_token = options.api_key;
  client_options.headers = plan.headers;
  client_options.insecure = options.insecure;
  client_options.timeout = 60;
  const HttpClient asking(plan.url, client_options);
  const ModelNames model = find_model(options, asking);

  ServeIdentity identity{current_date(), model.in_results, std::nullopt};
  const bool saves = options.save_result || options.append_result;
  if (saves && !options.result_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.result_dir, error);
    if (error) throw invalid_argument(fmt::format("--result-dir {}: {}", options.result_dir, error.message()));
  }
  ResultFile file(saves ? serve_result_path(options, identity) : std::string(), "result-filename",
                  options.append_result ? ResultFile::Mode::kAppend : ResultFile::Mode::kReplace);

  Coder coder;
  if (!options.skip_tokenizer_init) open_coder(coder, options, model, asking);
  identity.tokenizer_id = coder.id;
  const std::vector<DatasetRequest> requests = load_dataset(options.dataset, coder.coder.get());
  check_lengths(requests, model);
  const AnswerShape shape = options.backend == "openai-embeddings" ? AnswerShape::kWhole : AnswerShape::kStream;
  if (shape == AnswerShape::kStream && !options.temperature)
    say("No --temperature: the server's default holds, which may differ between servers.\n");

  const Messages messages(options, plan, model.in_requests);
  const std::string id_prefix = options.request_id_prefix.empty() ? default_id_prefix() : options.request_id_prefix;
  LoadClient::Options load;
  load.insecure = options.insecure;
  load.max_concurrency = options.max_concurrency.value_or(0);
  load.timeout = 6 * 3600;
  LoadClient client(plan.url, load);
  if (options.ready_check_timeout_sec > 0)
    wait_until_ready(client, messages, requests.front(), shape, options.ready_check_timeout_sec, id_prefix);
  if (options.num_warmups > 0) {
    say(fmt::format("Warming up with {} requests...\n", options.num_warmups));
    const std::vector<DatasetRequest> warmups(static_cast<size_t>(options.num_warmups), requests.front());
    Run run(messages, warmups, shape, id_prefix + "warmup-");
    run.drive(client, std::vector<double>(warmups.size(), 0.0), !options.disable_tqdm);
  }
  say(fmt::format("Sending {} requests: {}, concurrency {}\n", requests.size(), describe(plan.arrivals),
                  options.max_concurrency ? std::to_string(*options.max_concurrency) : "without limit"));
  Run run(messages, requests, shape, id_prefix);
  const double seconds =
      run.drive(client, arrival_times(plan.arrivals, requests.size(), options.dataset.seed), !options.disable_tqdm);
  std::vector<RequestOutcome>& outcomes = run.outcomes();
  count_tokens(outcomes, requests, coder.coder.get());
  say_failures(outcomes);
  const ServeReport report = make_serve_report(outcomes, seconds, plan);
  say(serve_text(report, options, plan));
  file.write(serve_json(report, outcomes, options, plan, identity));
  if (report.completed == 0) throw Error(ErrorKind::kUnavailable, "no request succeeded");
}

}  // namespace quire
