// quire: one binary, several sub-commands.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "cli/command.h"

namespace quire {
namespace {

constexpr const char* kUsage =
    "usage: quire <command> [options]\n"
    "\n"
    "Runs and serves large language models.\n"
    "\n"
    "Commands:\n"
    "  serve          serve a model over HTTP, in the shape of the OpenAI API\n"
    "  chat           talk with a model, here or on a server\n"
    "  complete       continue a text, here or on a server\n"
    "  template       print what a conversation becomes in a model's chat template\n"
    "  run-batch      answer a file of requests\n"
    "  bench          measure: latency of a batch, throughput, a server, attention, the machine\n"
    "  tokenize       the tokens of a text\n"
    "  detokenize     the text of token ids\n"
    "\n"
    "Options:\n"
    "  -h, --help     this text; `quire <command> --help` lists the options of a command,\n"
    "                 --help=markdown prints them as a page, --help=environment the environment variables\n"
    "  -v, --version  print the version\n";

constexpr int kFailure = 1, kUsageError = 2;

int exit_code(ErrorKind kind) {
  return kind == ErrorKind::kInvalidArgument || kind == ErrorKind::kNotFound ? kUsageError : kFailure;
}

int dispatch(Arguments args) {
  const std::string command = args.empty() ? "--help" : args.front();
  if (command == "-h" || command == "--help" || command == "help") return print(kUsage), 0;
  if (command == "--help=environment") return print(environment_markdown()), 0;
  if (command == "-v" || command == "--version") return print(QUIRE_VERSION "\n"), 0;
  const Arguments rest = args.subspan(1);
  if (command == "serve") return serve_command(rest);
  if (command == "chat") return chat_command(rest);
  if (command == "complete") return complete_command(rest);
  if (command == "bench") return bench_command(rest);
  if (command == "run-batch") return run_batch_command(rest);
  if (command == "template") return template_command(rest);
  if (command == "tokenize") return tokenize_command(rest);
  if (command == "detokenize") return detokenize_command(rest);
  std::string nearest;
  for (const char* known : {"serve", "chat", "complete", "run-batch", "template", "bench", "tokenize", "detokenize"}) {
    if (edit_distance(command, known) <= 2) nearest = known;
  }
  throw invalid_argument("unknown command '" + command + "'" +
                         (nearest.empty()
                              ? "; there are serve, chat, complete, run-batch, template, bench, tokenize and detokenize"
                              : "; did you mean '" + nearest + "'?"));
}

// One line: what comes from a file or a flag may hold line breaks.
int fail(std::string message, int code) {
  for (char& c : message) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  std::fprintf(stderr, "quire: error: %s\n", message.c_str());
  return code;
}

int run(int argc, char** argv) {
  // A reader that goes away is an error of that write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return dispatch(args);
  } catch (const Error& error) {
    return fail(error.what(), exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return fail("out of memory", kFailure);
  } catch (const std::exception& error) {
    return fail(error.what(), kFailure);
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return argc < 1 ? 1 : quire::run(argc, argv); }
