// quire serve: the options of the HTTP front end.
#include "cli/serve.h"

#include "base/error.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "server/config.h"

namespace quire {
namespace {

constexpr double kMaxSeconds = 1e6;
constexpr double kMaxBytes = 1 << 30;

void add_listen_options(OptionTable& table, ServerConfig& config) {
  table.group("Server");
  table.add("host", config.host, "address to listen on").value_name("HOST");
  table.add("port", config.port, "TCP port; 0: any free one, named in the log");
  table.add("uds", config.uds, "Unix socket to listen on, instead of host and port").value_name("PATH");
  table.add("root-path", config.root_path, "prefix of all paths behind a proxy").value_name("PREFIX");
  table.add("api-key", config.api_keys, "keys; clients must send one of them")
      .env("QUIRE_API_KEY")
      .env("VLLM_API_KEY")
      .value_name("KEY [KEY ...]")
      .secret();
  table.add("metrics-without-api-key", config.metrics_without_api_key, "/metrics needs no key");
  table
      .add("allowed-hosts", config.allowed_hosts,
           "names that requests may be addressed to (Host header); *: any. Without it a server on a loopback address "
           "takes localhost and loopback addresses only, and others take any")
      .json_list()
      .value_name("NAME [NAME ...]");
  table.add("allowed-origins", config.allowed_origins, "origins of pages that may call this server (CORS); * = all")
      .json_list();
  table.add("allowed-methods", config.allowed_methods, "methods that such pages may use").json_list();
  table.add("allowed-headers", config.allowed_headers, "headers that such pages may send").json_list();
  table.add("allow-credentials", config.allow_credentials, "such pages may send cookies");
  table
      .add("shutdown-timeout", config.shutdown_timeout,
           "seconds that running requests get at SIGTERM; 0: they are aborted")
      .range(0, kMaxSeconds);
  table.add("io-threads", config.io_threads, "threads for HTTP").range(1, 256);
  table
      .add("server-dev-mode", config.server_dev_mode,
           "endpoints for development: GET /server_info, POST /reset_prefix_cache")
      .env("VLLM_SERVER_DEV_MODE");
}

void add_tls_options(OptionTable& table, ServerConfig& config) {
  table.group("TLS");
  table.add("ssl-keyfile", config.ssl_keyfile, "private key (PEM)").value_name("FILE");
  table.add("ssl-certfile", config.ssl_certfile, "certificate and those that lead to its root (PEM)")
      .value_name("FILE");
  table.add("ssl-ca-certs", config.ssl_ca_certs, "certificates that clients' ones must be signed by (PEM)")
      .value_name("FILE");
  table
      .add("ssl-cert-reqs", config.ssl_cert_reqs,
           "0: no certificate of the client is asked for; 1: one that is sent must be good; 2: one must be sent")
      .range(0, 2);
  table.add("ssl-ciphers", config.ssl_ciphers, "ciphers of TLS 1.2 in OpenSSL's words").value_name("LIST");
  table.add("enable-ssl-refresh", config.enable_ssl_refresh, "read the files again when they have changed");
}

void add_limit_options(OptionTable& table, ServerConfig& config) {
  table.group("HTTP limits");
  table
      .add("h11-max-incomplete-event-size", config.h11_max_incomplete_event_size,
           "bytes of the request line and headers")
      .human_readable()
      .range(1024, kMaxBytes);
  table.add("h11-max-header-count", config.h11_max_header_count, "headers of a request").range(1, 65536);
  table.add("max-body-size", config.max_body_size, "bytes of a request's body").human_readable().range(1024, kMaxBytes);
  table.add("max-write-buffer", config.max_write_buffer, "bytes that a slow reader may leave unread")
      .human_readable()
      .range(4096, kMaxBytes);
  table.add("max-connections", config.max_connections, "open connections").range(1, 1 << 20);
  table.add("header-timeout", config.header_timeout, "seconds for the headers of a request").range(0.1, kMaxSeconds);
  table
      .add("body-timeout", config.body_timeout, "seconds between two pieces of a body, and for one slower than 1 KiB/s")
      .range(0.1, kMaxSeconds);
  table.add("keep-alive-timeout", config.keep_alive_timeout, "seconds between two requests of a connection")
      .range(0.1, kMaxSeconds);
  table.add("write-timeout", config.write_timeout, "seconds without progress of an answer").range(0.1, kMaxSeconds);
  table.add("max-sequences", config.max_sequences, "largest n of a request").range(1, 16384);
}

void add_api_options(OptionTable& table, ServerConfig& config) {
  table.group("API");
  table.add("enable-request-id-headers", config.enable_request_id_headers, "X-Request-Id in answers");
  table.add("enable-force-include-usage", config.enable_force_include_usage, "usage in every stream");
  table.add("enable-prompt-tokens-details", config.enable_prompt_tokens_details, "cached tokens in usage");
  table.add("enable-server-load-tracking", config.enable_server_load_tracking, "/load counts requests");
  table.add("enable-tokenizer-info-endpoint", config.enable_tokenizer_info_endpoint, "GET /tokenizer_info");
  table.add("disable-fastapi-docs", config.disable_fastapi_docs, "no /openapi.json and no /docs");
  table.add("return-tokens-as-token-ids", config.return_tokens_as_token_ids, "tokens of logprobs as token_id:N");
  table
      .add("sse-keep-alive-interval", config.sse_keep_alive_interval,
           "seconds between comments in a silent stream; 0: none")
      .range(0, 86400);
  table
      .add("fingerprint-mode", config.fingerprint_mode, "system_fingerprint: program, version and hash of the settings")
      .choices({"full", "hash", "custom", "none"});
  table.add("fingerprint-value", config.fingerprint_value, "the fingerprint with --fingerprint-mode custom")
      .value_name("TEXT");
  table.add("response-role", config.response_role, "role of answers").value_name("ROLE");
  table.add("trust-request-chat-template", config.trust_request_chat_template,
            "a request may bring its own chat template");
  table
      .add("default-chat-template-kwargs", config.default_chat_template_kwargs,
           "JSON object of template variables; a request's own win")
      .json_object()
      .value_name("JSON");
  table
      .add(
          "chat-template-content-format", config.chat_template_content_format,
          "messages' content in the template: string, openai (a list of parts), auto: parts if the template loops over "
          "them")
      .choices({"auto", "string", "openai"});
}

void add_log_options(OptionTable& table, ServerConfig& config) {
  table.group("Logging");
  table.add("enable-log-requests", config.enable_log_requests,
            "log id and parameters of each request, prompts with --log-level debug");
  table.add("max-log-len", config.max_log_len, "characters of a logged prompt; -1: all").range(-1, kMaxBytes);
  table.add("disable-access-log", config.disable_access_log, "no line for each HTTP request")
      .alias("disable-uvicorn-access-log");
  table
      .add("disable-access-log-for-endpoints", config.disable_access_log_for_endpoints,
           "paths without such a line, with commas between them")
      .value_name("PATH[,PATH ...]");
}

// Flags of vLLM for what is not here, or is here without asking.
void add_vllm_names(OptionTable& table) {
  using enum Values;
  table.group("Without effect");
  for (const auto& [name, values, why] : std::initializer_list<std::tuple<const char*, Values, const char*>>{
           {"uvicorn-log-level", kOne, "use --log-level"},
           {"enable-offline-docs", kNone, "/docs loads nothing from elsewhere"},
           {"log-error-stack", kNone, "errors have no stack traces"},
           {"disable-frontend-multiprocessing", kNone, "there is one process"},
           {"enable-log-deltas", kNone, "answers are not logged"},
           {"exclude-tools-when-tool-choice-none", kNone, "the template decides"},
           {"tool-strict-level", kOne, "tool calls are not parsed"},
           {"enable-reasoning", kNone, "reasoning stays part of the text"}}) {
    table.ignored(name, values, why);
  }
  table.ignored("api-server-count", kOne, "one process; --io-threads sets its HTTP threads").short_name("asc");
  table.group("Refused");
  for (const auto& [name, values, why] : std::initializer_list<std::tuple<const char*, Values, const char*>>{
           {"middleware", kOne, "there is no Python to load"},
           {"headless", kNone, "not supported"},
           {"grpc", kNone, "not supported"},
           {"grpc-port", kOne, "not supported"},
           {"enable-log-outputs", kNone, "answers are not logged"},
           {"enable-auto-tool-choice", kNone, "not supported"},
           {"tool-call-parser", kOne, "not supported"},
           {"tool-parser-plugin", kOne, "there is no Python to load"},
           {"tool-server", kOne, "not supported"},
           {"reasoning-effort-map", kOne, "the template gets a request's effort as it is"},
           {"enable-per-request-metrics", kNone, "not supported"},
           {"logging-config", kOne, "use --log-level and --log-format"}}) {
    table.refused(name, why, values);
  }
}

std::vector<std::string> split_at_commas(const std::vector<std::string>& lists) {
  std::vector<std::string> out;
  for (const std::string& list : lists) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t comma = std::min(list.find(',', begin), list.size());
      if (comma > begin) out.push_back(list.substr(begin, comma - begin));
      begin = comma + 1;
    }
  }
  return out;
}

}  // namespace

int serve_command(Arguments args) {
  return serve_command(args, [](const EngineConfig& config) { return std::make_unique<Engine>(config); });
}

int serve_command(Arguments args, const EngineMaker& make_engine) {
  EngineConfig engine;
  ServerConfig server;
  OptionTable table("quire serve", "Serve a model over HTTP, in the shape of the OpenAI API.");
  add_listen_options(table, server);
  add_tls_options(table, server);
  add_engine_options(table, engine);
  table.row("quantization").short_name("q");
  add_api_options(table, server);
  add_limit_options(table, server);
  add_log_options(table, server);
  add_vllm_names(table);
  table.positional("model");
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  finish_engine_options(engine);
  server.disable_access_log_for_endpoints = split_at_commas(server.disable_access_log_for_endpoints);
  if (!server.root_path.empty() && server.root_path.front() != '/') {
    throw invalid_argument("--root-path " + server.root_path + ": must begin with /", "root-path");
  }
  if (server.ssl_keyfile.empty() != server.ssl_certfile.empty()) {
    throw invalid_argument("--ssl-keyfile, --ssl-certfile: one needs the other", "ssl-certfile");
  }
  server.options_json = parsed.values;
  return run_server(engine, server, make_engine);
}

}  // namespace quire
