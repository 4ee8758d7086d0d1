// Streams completions over many connections from one thread and measures what arrives: tokens a second, time to the
// first token, time between two, and with --handover the time from the engine's hand-over to this program's read.
//
//   quire_overhead_client --port 8000 [--clients 64] [--tokens 512] [--seconds 10] [--warmup 1] [--handover FILE]
//                         [--model m]
// Each client sends one request after the other on a connection of its own, opened again when the server ends it. Works
// with any server that has /v1/completions and takes ignore_eos. Prints one JSON object.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reliability/handover.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint16_t port = 8000;
  size_t clients = 64;
  int tokens = 512;
  double seconds = 10, warmup = 1;
  std::string handover, model = "m";
};

int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

struct Client {
  int socket = -1;
  std::string line;                 // the beginning of one that is still to end
  size_t position = 0, events = 0;  // of the present request
  int closed = 0;                   // connections in a row that ended before an answer began
  int64_t sent = 0, last = 0;
};

class Load {
 public:
  explicit Load(Options options) : options_(std::move(options)), clients_(options_.clients), epoll_(epoll_create1(0)) {
    if (!options_.handover.empty()) handover_ = quire::map_handover_times(options_.handover, false);
    for (size_t i = 0; i < clients_.size(); ++i) {
      open(i);
      send_request(i);
    }
  }

  void run() {
    const int64_t begin = now_ns();
    const auto after = [&](double seconds) { return begin + static_cast<int64_t>(seconds * 1e9); };
    measure_from_ = after(options_.warmup);
    const int64_t end = after(options_.warmup + options_.seconds);
    std::vector<epoll_event> ready(clients_.size());
    for (int64_t now = begin; now < end; now = now_ns()) {
      const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 100);
      for (int i = 0; i < count; ++i) read_some(static_cast<size_t>(ready[static_cast<size_t>(i)].data.u64));
    }
    report(static_cast<double>(now_ns() - measure_from_) / 1e9);
  }

 private:
  int connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect to port " + std::to_string(options_.port));
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
  }

  void open(size_t index) {
    clients_[index].socket = connect();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, clients_[index].socket, &event);
  }

  // Servers end connections that are kept alive when they like; the request then goes out again on another one.
  void reopen(size_t index) {
    Client& client = clients_[index];
    constexpr int kMost = 3;
    if (client.position > 0) throw std::runtime_error("the server has closed a connection within an answer");
    if (++client.closed > kMost) throw std::runtime_error("the server closes connections without an answer");
    close(client.socket);
    client.line.clear();
    open(index);
    send_request(index);
  }

  void send_request(size_t index) {
    std::string body = R"({"model":")" + options_.model + R"(","prompt":"Once upon )" + std::to_string(index) +
                       R"(","stream":true,"temperature":0,"ignore_eos":true,"max_tokens":)" +
                       std::to_string(options_.tokens);
    if (handover_ != nullptr) body += R"(,"return_token_ids":true)";
    body += '}';
    const std::string text =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-Id: client" +
        std::to_string(index) + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    Client& client = clients_[index];
    client.position = 0;
    client.events = 0;
    client.sent = now_ns();
    const ssize_t sent = send(client.socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return;  // read_some() is told so
    if (sent != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("a request can't be sent");
    }
  }

  void read_some(size_t index) {
    Client& client = clients_[index];
    while (true) {
      const ssize_t bytes = read(client.socket, buffer_, sizeof buffer_);
      if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (bytes <= 0) return reopen(index);
      const int64_t now = now_ns();
      ++reads_;
      std::string_view rest(buffer_, static_cast<size_t>(bytes));
      for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
        if (client.line.empty()) {
          take_line(index, rest.substr(0, end), now);
        } else {
          client.line.append(rest.substr(0, end));
          take_line(index, client.line, now);
          client.line.clear();
        }
      }
      client.line.append(rest);
      if (static_cast<size_t>(bytes) < sizeof buffer_) return;
    }
  }

  // Tokens of an event: the numbers in "token_ids":[..], or one where they were not asked for.
  size_t tokens_of(std::string_view line) const {
    if (handover_ == nullptr) return 1;
    constexpr std::string_view kKey = "\"token_ids\":[";
    const size_t at = line.rfind(kKey);
    if (at == std::string_view::npos) return 0;
    const std::string_view ids = line.substr(at + kKey.size(), line.find(']', at) - at - kKey.size());
    return ids.empty() ? 0 : static_cast<size_t>(std::ranges::count(ids, ',')) + 1;
  }

  void take_line(size_t index, std::string_view line, int64_t now) {
    if (line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.1 200")) {
      throw std::runtime_error("the server answers " + std::string(line.substr(9, 3)));
    }
    if (!line.starts_with("data: ")) return;
    Client& client = clients_[index];
    if (line.starts_with("data: [DONE]")) {
      ++finished_;
      finished_events_ += client.events;
      send_request(index);
      return;
    }
    if (line.find("\"error\"") != std::string_view::npos) throw std::runtime_error(std::string(line.substr(0, 300)));
    const size_t tokens = tokens_of(line);
    ++client.events;
    if (now >= measure_from_) {
      ++events_;
      tokens_ += tokens;
      (client.position == 0 ? first_ : between_).push_back(now - (client.position == 0 ? client.sent : client.last));
      for (size_t i = 0; handover_ != nullptr && i < tokens && client.position + i < quire::kHandoverTokens; ++i) {
        late_.push_back(now - handover_->at[index][client.position + i].load());
      }
    }
    client.position += tokens;
    client.last = now;
    client.closed = 0;
  }

  static double percentile(std::vector<int64_t>& values, double share) {
    if (values.empty()) return 0;
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return static_cast<double>(*at) / 1e6;
  }

  // Some servers send no event for a token without text, or one for several: what their finished requests say counts.
  double tokens() const {
    if (handover_ != nullptr || finished_ == 0) return static_cast<double>(tokens_);
    return static_cast<double>(events_) * static_cast<double>(finished_) * options_.tokens /
           static_cast<double>(finished_events_);
  }

  void report(double seconds) {
    std::printf(
        "{\"clients\": %zu, \"seconds\": %.2f, \"requests\": %zu, \"events_per_s\": %.0f, \"tokens_per_s\": %.0f, "
        "\"reads\": %zu, \"ttft_ms_p50\": %.2f, \"ttft_ms_p99\": %.2f, \"itl_ms_p50\": %.2f, \"itl_ms_p99\": %.2f",
        clients_.size(), seconds, finished_, static_cast<double>(events_) / seconds, tokens() / seconds, reads_,
        percentile(first_, 0.5), percentile(first_, 0.99), percentile(between_, 0.5), percentile(between_, 0.99));
    if (handover_ != nullptr) {
      std::printf(", \"handover_ms_p50\": %.3f, \"handover_ms_p99\": %.3f, \"handover_ms_max\": %.3f",
                  percentile(late_, 0.5), percentile(late_, 0.99), percentile(late_, 1));
    }
    std::printf("}\n");
  }

  Options options_;
  std::vector<Client> clients_;
  int epoll_;
  quire::HandoverTimes* handover_ = nullptr;
  char buffer_[64 << 10];
  int64_t measure_from_ = INT64_MAX;
  size_t finished_ = 0, finished_events_ = 0, events_ = 0, tokens_ = 0, reads_ = 0;
  std::vector<int64_t> first_, between_, late_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* const value = argv[i + 1];
    if (flag == "--port") {
      options.port = static_cast<uint16_t>(std::atoi(value));
    } else if (flag == "--clients") {
      options.clients = static_cast<size_t>(std::atoi(value));
    } else if (flag == "--tokens") {
      options.tokens = std::atoi(value);
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value);
    } else if (flag == "--warmup") {
      options.warmup = std::atof(value);
    } else if (flag == "--handover") {
      options.handover = value;
    } else if (flag == "--model") {
      options.model = value;
    } else {
      throw std::runtime_error("unknown flag " + std::string(flag));
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Load(parse(argc, argv)).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
