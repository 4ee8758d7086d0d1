#pragma once
// The TLS settings of a server: key, certificate, what clients must show. TLS 1.2 and 1.3.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "server/config.h"
#include "server/http_stream.h"

namespace quire {

// Used by one thread.
class TlsFiles {
 public:
  // Reads the files. Throws Error(kInvalidArgument) naming flag, file and reason.
  explicit TlsFiles(const ServerConfig& config);

  // Settings for a new connection. With enable_ssl_refresh the files are looked at again, at most once a second; ones
  // that can't be used give a warning, and the old settings stay.
  const TlsSettings& settings();

 private:
  using FileTimes = std::vector<std::filesystem::file_time_type>;
  TlsSettings read() const;
  FileTimes file_times() const;

  ServerConfig config_;
  TlsSettings settings_;
  FileTimes times_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace quire
