#include "server/http_tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace quire {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr std::chrono::seconds kLookAgain{1};

void check(const error_code& error, const char* flag, const std::string& value) {
  if (error) throw invalid_argument(fmt::format("--{} {}: {}", flag, value, error.message()), flag);
}

}  // namespace

TlsFiles::TlsFiles(const ServerConfig& config)
    : config_(config), settings_(read()), times_(file_times()), looked_(std::chrono::steady_clock::now()) {}

TlsSettings TlsFiles::read() const {
  auto made = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = made->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);  // clients keep their sessions, as tickets
  SSL_CTX_set_num_tickets(native, 1);
  error_code error;
  // A key with a pass phrase is refused; OpenSSL would ask for it on the terminal.
  made->set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  made->use_certificate_chain_file(config_.ssl_certfile, error);
  check(error, "ssl-certfile", config_.ssl_certfile);
  made->use_private_key_file(config_.ssl_keyfile, ssl::context::pem, error);
  check(error, "ssl-keyfile", config_.ssl_keyfile);
  if (!config_.ssl_ciphers.empty() && SSL_CTX_set_cipher_list(native, config_.ssl_ciphers.c_str()) != 1) {
    throw invalid_argument(fmt::format("--ssl-ciphers {}: names no cipher", config_.ssl_ciphers), "ssl-ciphers");
  }
  if (!config_.ssl_ca_certs.empty()) {
    made->load_verify_file(config_.ssl_ca_certs, error);
    check(error, "ssl-ca-certs", config_.ssl_ca_certs);
    SSL_CTX_set_client_CA_list(native, SSL_load_client_CA_file(config_.ssl_ca_certs.c_str()));
  }
  if (config_.ssl_cert_reqs > 0) {
    if (config_.ssl_ca_certs.empty()) {
      throw invalid_argument(fmt::format("--ssl-cert-reqs {}: needs --ssl-ca-certs", config_.ssl_cert_reqs),
                             "ssl-cert-reqs");
    }
    made->set_verify_mode(
        ssl::verify_peer | (config_.ssl_cert_reqs == 2 ? ssl::verify_fail_if_no_peer_cert : ssl::verify_none), error);
    // Sessions of clients that showed a certificate can be resumed only under a name.
    static constexpr unsigned char kName[] = "quire";
    SSL_CTX_set_session_id_context(native, kName, sizeof kName - 1);
  }
  return made;
}

TlsFiles::FileTimes TlsFiles::file_times() const {
  FileTimes times;
  std::error_code ignored;  // a file that is gone has a time too
  for (const std::string* path : {&config_.ssl_keyfile, &config_.ssl_certfile, &config_.ssl_ca_certs})
    times.push_back(std::filesystem::last_write_time(*path, ignored));
  return times;
}

const TlsSettings& TlsFiles::settings() {
  const auto now = std::chrono::steady_clock::now();
  if (!config_.enable_ssl_refresh || now - looked_ < kLookAgain) return settings_;
  looked_ = now;
  FileTimes times = file_times();
  if (times == times_) return settings_;
  times_ = std::move(times);
  try {
    settings_ = read();
    log_info(fmt::format("TLS: read {} again", config_.ssl_certfile));
  } catch (const Error& error) {
    log_warning(fmt::format("TLS: the files have changed and can't be used, the old ones stay: {}", error.what()));
  }
  return settings_;
}

}  // namespace quire
