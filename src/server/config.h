#pragma once
// What the HTTP front end is started with. The option rows of `quire serve` fill it; names are those of the flags.
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct ServerConfig {
  std::string host = "0.0.0.0";
  uint16_t port = 8000;   // 0 = any free one, named in the log
  std::string uds;        // path of a Unix socket; then host and port are not used
  std::string root_path;  // prefix behind a proxy ("/llm"); also accepted without it

  std::vector<std::string> api_keys;         // empty = open; any one of them opens every path
  std::vector<std::string> allowed_origins;  // CORS; "*" = all, empty = none
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;

  // Limits; past one the connection is answered 408, 413 or 431, or refused.
  int64_t h11_max_incomplete_event_size = 64 << 10;  // bytes of the request line and headers
  int32_t h11_max_header_count = 256;
  int64_t max_body_size = 32 << 20;    // bytes
  int64_t max_write_buffer = 1 << 20;  // bytes a slow reader may leave unread before its stream is aborted
  int32_t max_connections = 8192;
  double header_timeout = 10;  // seconds for the whole header block of a request that has begun
  double body_timeout = 30;    // seconds between two reads of a body, and for all of one that comes slower than 1 KiB/s
  double keep_alive_timeout = 75;  // seconds between two requests of a connection
  double write_timeout = 30;       // seconds without progress of a write
  double shutdown_timeout = 0;     // seconds that running requests get at SIGTERM; 0 = abort them

  bool disable_access_log = false;                            // --disable-uvicorn-access-log
  std::vector<std::string> disable_access_log_for_endpoints;  // paths
  bool enable_log_requests = false;
  int64_t max_log_len = -1;  // characters of a logged prompt; -1 = all

  bool enable_request_id_headers = false;
  bool enable_force_include_usage = false;
  bool enable_prompt_tokens_details = false;
  bool enable_server_load_tracking = false;
  bool enable_tokenizer_info_endpoint = false;
  bool return_tokens_as_token_ids = false;
  int32_t sse_keep_alive_interval = 0;  // seconds between comments in a silent stream; 0 = off
  int32_t max_sequences = 128;          // largest n of a request

  std::string response_role = "assistant";
  bool trust_request_chat_template = false;
  std::string default_chat_template_kwargs;           // JSON object; empty = {}
  std::string chat_template_content_format = "auto";  // or string, openai

  int32_t io_threads = 2;

  // TLS; both files or none. cert_reqs as in Python's ssl: 0 = no certificate of the client is asked for, 1 = one that
  // is sent must be good, 2 = one must be sent.
  std::string ssl_keyfile, ssl_certfile, ssl_ca_certs, ssl_ciphers;
  int32_t ssl_cert_reqs = 0;
  bool enable_ssl_refresh = false;  // read the files again when they have changed

  // Names (without port) that requests may be addressed to, "*" = any. Empty: any, but on a loopback address only
  // those of this host, so that no web page can reach the server by a name of its own (DNS rebinding).
  std::vector<std::string> allowed_hosts;
  bool metrics_without_api_key = false;
  bool server_dev_mode = false;           // /server_info, /reset_prefix_cache
  std::string options_json;               // all options as they were started with, for /server_info
  bool disable_fastapi_docs = false;      // no /openapi.json and /docs
  std::string fingerprint_mode = "full";  // system_fingerprint: full = program, version, hash; hash; custom; none
  std::string fingerprint_value;          // of mode custom
};

}  // namespace quire
