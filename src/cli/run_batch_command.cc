// quire run-batch: its options, the model, and where the files are.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "cli/command.h"
#include "cli/run_batch.h"
#include "client/http_client.h"
#include "engine/options.h"
#include "server/api.h"
#include "server/app.h"

namespace quire {
namespace {

constexpr size_t kMaxRemoteFile = size_t{1} << 30;

struct BatchOptions {
  std::string input, output, tmp_dir;
  int64_t max_inflight = 256;
  EngineConfig engine;
  ServerConfig server;
};

void add_options(OptionTable& table, BatchOptions& options) {
  table.group("Batch");
  table
      .add("input-file", options.input,
           "requests, a JSON object {custom_id, method, url, body} in each line; a path or an http URL")
      .short_name("i")
      .value_name("FILE");
  table.add("output-file", options.output, "answers, one line each in the same order; a path, or a URL to PUT them to")
      .short_name("o")
      .value_name("FILE");
  table
      .add("output-tmp-dir", options.tmp_dir,
           "folder for the answers until all are there; without it that of the output file")
      .value_name("DIR");
  table.add("max-inflight", options.max_inflight, "requests at work at once").range(1, 1 << 20);
  table.add("response-role", options.server.response_role, "role of answers").value_name("ROLE");
  table.add("trust-request-chat-template", options.server.trust_request_chat_template,
            "a request may bring its own chat template");
  table
      .add("default-chat-template-kwargs", options.server.default_chat_template_kwargs,
           "JSON object of template variables; a request's own win")
      .value_name("JSON");
  add_engine_options(table, options.engine);
  table.group("Without effect");
  table.ignored("enable-metrics", Values::kNone, "the statistics line of the log says what they would");
  table.ignored("host", Values::kOne, "there are no metrics to serve");
  table.ignored("port", Values::kOne, "there are no metrics to serve");
  table.positional("model");
}

bool is_url(const std::string& name) { return name.starts_with("http://") || name.starts_with("https://"); }

std::unique_ptr<std::istream> open_input(const std::string& name) {
  if (is_url(name)) {
    HttpClient::Options options;
    options.max_body = kMaxRemoteFile;
    return std::make_unique<std::istringstream>(HttpClient(parse_http_url(name, "input-file"), options).get(""));
  }
  auto file = std::make_unique<std::ifstream>(name, std::ios::binary);
  if (!*file || std::filesystem::is_directory(name))
    throw not_found(fmt::format("--input-file {}: cannot be read", name), "input-file");
  return file;
}

// The output while it grows: a file beside its place, or in --output-tmp-dir, that goes away if it is not moved there.
class OutputFile {
 public:
  OutputFile(std::string target, const std::string& tmp_dir) : target_(std::move(target)) {
    namespace fs = std::filesystem;
    const std::string name = is_url(target_) ? "quire-batch" : fs::path(target_).filename().string();
    const fs::path folder = !tmp_dir.empty()  ? fs::path(tmp_dir)
                            : is_url(target_) ? fs::temp_directory_path()
                                              : fs::path(target_).parent_path();
    path_ = (folder / fmt::format("{}.{}.tmp", name, getpid())).string();
    stream_.open(path_, std::ios::binary | std::ios::trunc);
    if (!stream_ || (!is_url(target_) && fs::is_directory(target_))) {
      throw invalid_argument(fmt::format("--output-file {}: cannot be written ({})", target_, std::strerror(errno)),
                             "output-file");
    }
  }
  ~OutputFile() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream() { return stream_; }

  void deliver() {
    stream_.close();
    if (!stream_) throw failure(std::strerror(errno));
    if (is_url(target_)) {
      const std::string all = read_text_file(path_, kMaxRemoteFile);
      const HttpClient client(parse_http_url(target_, "output-file"), {});
      const int status = client.request("PUT", "", all, "application/x-ndjson").status;
      if (status / 100 != 2) throw failure(fmt::format("the server answered {}", status));
      return;
    }
    std::error_code error;
    std::filesystem::rename(path_, target_, error);
    if (error == std::errc::cross_device_link) std::filesystem::copy_file(path_, target_, kReplace, error);
    if (error) throw failure(error.message());
  }

 private:
  static constexpr auto kReplace = std::filesystem::copy_options::overwrite_existing;
  Error failure(const std::string& why) const {
    return {ErrorKind::kInternal, fmt::format("--output-file {}: writing failed ({})", target_, why), "output-file"};
  }
  std::string target_, path_;
  std::ofstream stream_;
};

}  // namespace

int run_batch_command(Arguments args) {
  BatchOptions options;
  OptionTable table("quire run-batch", "Answer a file of requests with a model in this process.");
  add_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  for (const auto& [name, value] :
       {std::pair("input-file", &options.input), std::pair("output-file", &options.output)}) {
    if (value->empty()) throw invalid_argument(fmt::format("--{}: is needed", name), name);
  }
  finish_engine_options(options.engine);
  const std::unique_ptr<std::istream> input = open_input(options.input);
  if (is_url(options.output)) parse_http_url(options.output, "output-file");
  OutputFile output(options.output, options.tmp_dir);

  options.engine.max_num_queued_reqs =
      std::max<int64_t>({options.engine.max_num_queued_reqs, 1024, 4 * options.max_inflight});
  WorkThread thread;  // outlives the engine, which may still call it
  Engine engine(options.engine);
  Api api(engine, options.server);
  const Router router(options.server, api_routes(api));
  const auto handler = [&router](std::shared_ptr<HttpExchange> exchange) { router(std::move(exchange)); };
  const BatchCounts counts = run_batch(*input, output.stream(), handler, thread, options.max_inflight);
  output.deliver();
  log_info(fmt::format("{}: {} requests answered, {} of them with an error", options.output, counts.requests,
                       counts.failed));
  return 0;
}

}  // namespace quire
