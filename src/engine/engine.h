#pragma once
// The engine: model, tokenizer and template loaded once; one thread that schedules and runs steps. Everything else
// talks to it through submit() and the Generation that it returns.
#include <chrono>
#include <memory>
#include <string>

#include "attention/backend.h"
#include "checkpoint/checkpoint.h"
#include "engine/config.h"
#include "engine/generation.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace quire {

class EngineDevice;
class EngineMetrics;
class Model;
struct EngineParts;

class Engine {
 public:
  // Loads the model and starts the engine thread. Throws Error with one line that names the flag, file or limit.
  explicit Engine(EngineConfig config);
  Engine(EngineConfig config, EngineParts parts);  // the model is there already (engine/parts.h)
  ~Engine();                                       // aborts what runs
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineConfig& config() const;  // with every default filled in
  const ModelConfig& model_config() const;
  const GenerationConfig& generation_config() const;  // as --generation-config says
  const Tokenizer& tokenizer() const;                 // throws Error if the checkpoint has none
  const ChatFormat& chat_format() const;              // empty if the checkpoint has no chat template
  const std::string& model_name() const;              // first served name
  int64_t max_model_len() const;
  // For measurements.
  const Model& model() const;
  const EngineDevice& device() const;
  AttentionGroup attention() const;

  // Checks the request (engine/admission.h: the one validator of every entry) and queues it. Any thread. Throws Error:
  // kInvalidArgument naming the parameter, the value and the limit; kUnavailable if the queue is full or the engine
  // shuts down. What still runs when the last copy of the result goes is cancelled.
  std::shared_ptr<Generation> submit(GenerateRequest request);

  // No new requests from now on; running ones may finish until the timeout, then they are aborted. Returns when the
  // engine is idle.
  void shutdown(std::chrono::milliseconds timeout);

  bool healthy()
      const;  // false if a step takes more than 10 s, the last three steps failed, or the engine thread is gone
  void reset_prefix_cache();
  EngineMetrics& metrics();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
