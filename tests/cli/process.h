#pragma once
// Runs the quire binary that was built beside this test, and collects what it prints.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace quire {

// $QUIRE_TEST_BINARY, else ../quire from the folder of this test program.
inline std::string quire_binary() {
  if (const char* path = std::getenv("QUIRE_TEST_BINARY")) return path;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "quire";
}

struct Outcome {
  int code = -1;  // exit code; 1000 + signal if one ended it
  std::string out, err;
};

class Process {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  explicit Process(const std::vector<std::string>& args, const Environment& environment = {}) {
    ::signal(SIGPIPE, SIG_IGN);  // a command that ends before it has read everything is no failure of the test
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe");
    const std::string binary = quire_binary();
    std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      execv(binary.c_str(), argv.data());
      _exit(126);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    stdin_ = in[1];
    fds_[0] = out[0];
    fds_[1] = err[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close_stdin();
    for (const int fd : fds_) {
      if (fd >= 0) close(fd);
    }
  }

  void send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = write(stdin_, text.data() + sent, text.size() - sent);
      if (n <= 0) return;  // it ended before reading everything
      sent += static_cast<size_t>(n);
    }
  }
  void close_stdin() {
    if (stdin_ >= 0) close(stdin_);
    stdin_ = -1;
  }
  void signal(int number) const { kill(pid_, number); }

  // Reads until stdout holds `text`; false at its end or after 20 s.
  bool wait_for(const std::string& text) {
    while (outcome_.out.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }

  Outcome finish() {
    close_stdin();
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    outcome_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return outcome_;
  }

 private:
  bool read_some() {
    pollfd polls[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};
    constexpr int kTimeoutMs = 20000;
    if (poll(polls, 2, kTimeoutMs) <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (polls[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = read(fds_[i], buffer, sizeof buffer);
      if (n > 0) {
        (i == 0 ? outcome_.out : outcome_.err).append(buffer, static_cast<size_t>(n));
      } else {
        close(fds_[i]);
        fds_[i] = -1;
      }
    }
    return fds_[0] >= 0 || fds_[1] >= 0;
  }

  pid_t pid_ = -1;
  int stdin_ = -1;
  int fds_[2] = {-1, -1};
  Outcome outcome_;
};

inline Outcome run_quire(const std::vector<std::string>& args, const std::string& input = {},
                         const Process::Environment& environment = {}) {
  Process process(args, environment);
  process.send(input);
  return process.finish();
}

}  // namespace quire
