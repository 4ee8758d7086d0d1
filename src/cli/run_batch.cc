#include "cli/run_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/error.h"
#include "server/json_body.h"
#include "server/json_errors.h"
#include "server/log_failure.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLine = size_t{64} << 20;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

class Ids {
 public:
  std::string next(const char* prefix) {
    std::string out = prefix;
    for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", static_cast<uint32_t>(random_()));
    return out;
  }

 private:
  std::mt19937_64 random_{(uint64_t{std::random_device()()} << 32) ^ std::random_device()()};
};

// A line of the input as a request; or why it is none.
struct BatchLine {
  Json custom_id;  // null if it has none
  HttpRequest request;
  std::string refusal;
};

BatchLine read_line(std::string_view text) {
  BatchLine line;
  Json json;
  try {
    json = parse_json_object(text);
  } catch (const Error& error) {
    line.refusal = fmt::format("the line is no JSON object that can be read ({})", error.what());
    return line;
  }
  if (const auto id = json.find("custom_id"); id != json.end() && id->is_string()) line.custom_id = *id;
  const auto text_at = [&](const char* key) {
    const auto field = json.find(key);
    return field != json.end() && field->is_string() ? field->get<std::string>() : std::string();
  };
  line.request.method = text_at("method");
  line.request.path = text_at("url");
  const auto body = json.find("body");
  if (line.custom_id.is_null()) {
    line.refusal = "custom_id: must be a text";
  } else if (line.request.method != "POST") {
    line.refusal = "method: must be POST";
  } else if (line.request.path.empty()) {
    line.refusal = "url: must be a text such as /v1/chat/completions";
  } else if (body == json.end() || !body->is_object()) {
    line.refusal = "body: must be an object";
  } else if (const auto stream = body->find("stream"); stream != body->end() && *stream == Json(true)) {
    line.refusal = "stream: answers in a file are whole";
  } else {
    line.request.headers = {{"Content-Type", "application/json"}};
    line.request.body = dump(*body);
    line.request.peer = "file";
  }
  return line;
}

// The entries of a batch: they end in any order and are written in that of their lines.
class BatchWriter {
 public:
  explicit BatchWriter(std::ostream& out) : out_(out) {}

  // On any thread. An entry that can't be made is check()'s to report.
  void end(int64_t number, const Json& custom_id, const HttpResponse& response) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      add(number, custom_id, response);
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
    --at_work_;
    changed_.notify_all();
  }

  // Waits until fewer than max_inflight are at work, and what waits to be written is bounded. An end() must follow.
  void begin(int64_t max_inflight) {
    constexpr int64_t kMostWaiting = 4096;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const bool room = counts_.requests - written_ < std::max(kMostWaiting, 2 * max_inflight);
      return at_work_ < max_inflight && (room || failure_ != nullptr);
    });
    ++at_work_;
    ++counts_.requests;
  }
  void wait_for_all() noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return at_work_ == 0; });
  }
  // Throws what has kept an entry from being written.
  void check() {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (!out_) throw Error(ErrorKind::kInternal, "--output-file: writing failed", "output-file");
  }
  BatchCounts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void add(int64_t number, const Json& custom_id, const HttpResponse& response) {
    const bool failed = response.status != 200;
    const Json body = Json::parse(response.body, nullptr, false);
    Json entry = {{"id", ids_.next("quire-")},
                  {"custom_id", custom_id},
                  {"response",
                   {{"status_code", response.status},
                    {"request_id", ids_.next("quire-batch-")},
                    {"body", failed || body.is_discarded() ? Json() : body}}},
                  {"error", failed ? (body.is_object() && body.contains("error") ? body["error"] : Json(response.body))
                                   : Json()}};
    ended_.emplace(number, dump(entry) + '\n');
    counts_.failed += failed ? 1 : 0;
    while (!ended_.empty() && ended_.begin()->first == written_) {
      out_ << ended_.begin()->second;
      ended_.erase(ended_.begin());
      ++written_;
    }
  }

  std::ostream& out_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::string> ended_;
  BatchCounts counts_;
  Ids ids_;
  std::exception_ptr failure_;
  int64_t written_ = 0, at_work_ = 0;
};

// Once this is gone, however the batch ends, no request refers to the writer and the thread holds nothing of the
// handler's.
class WaitForAll {
 public:
  WaitForAll(BatchWriter& writer, WorkThread& thread) : writer_(writer), thread_(thread) {}
  ~WaitForAll() {
    writer_.wait_for_all();
    thread_.wait_until_idle();  // the last answer is written before its request is destroyed
  }
  WaitForAll(const WaitForAll&) = delete;
  WaitForAll& operator=(const WaitForAll&) = delete;

 private:
  BatchWriter& writer_;
  WorkThread& thread_;
};

bool next_line(std::istream& in, std::string& line) {
  line.clear();
  for (int c; (c = in.get()) != std::char_traits<char>::eof();) {
    if (c == '\n') return true;
    if (line.size() == kMaxLine) {
      throw invalid_argument(fmt::format("--input-file: a line is longer than the limit of {} bytes", kMaxLine),
                             "input-file");
    }
    line += static_cast<char>(c);
  }
  return !line.empty();
}

void handle(const HttpHandler& handler, const std::shared_ptr<BatchExchange>& exchange) {
  try {
    try {
      handler(exchange);
    } catch (const Error& error) {
      exchange->respond(error_response(error));
    } catch (const std::bad_alloc&) {
      exchange->respond(error_response(503, "Service Unavailable", "out of memory for this request"));
    } catch (const std::exception& error) {
      log_failure("request failed", error);
      exchange->respond(error_response(500, "InternalServerError", "internal error"));
    }
  } catch (const std::exception& error) {  // an exchange without an answer gives one itself
    log_failure("request failed", error);
  }
}

}  // namespace

BatchCounts run_batch(std::istream& in, std::ostream& out, const HttpHandler& handler, WorkThread& thread,
                      int64_t max_inflight) {
  BatchWriter writer(out);
  const WaitForAll wait_for_all(writer, thread);
  std::string text;
  for (int64_t number = 0; next_line(in, text);) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    writer.check();
    BatchLine line = read_line(text);
    const auto done = [&writer, number, id = line.custom_id](const HttpResponse& response) {
      writer.end(number, id, response);
    };
    ++number;
    // begin() comes when nothing can keep done() from being called.
    if (!line.refusal.empty()) {
      const HttpResponse refusal = error_response(400, "BadRequestError", line.refusal);
      writer.begin(max_inflight);
      done(refusal);
    } else {
      const auto exchange = std::make_shared<BatchExchange>(std::move(line.request), thread, done);
      writer.begin(max_inflight);
      handle(handler, exchange);
    }
  }
  writer.wait_for_all();
  out.flush();
  writer.check();
  return writer.counts();
}

}  // namespace quire
