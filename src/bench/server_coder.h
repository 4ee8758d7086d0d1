#pragma once
// The tokenizer behind a server: POST /tokenize and /detokenize, as vLLM's and llama.cpp's servers have them.
#include <memory>

#include "bench/datasets.h"
#include "client/http_client.h"

namespace quire {

// client's URL is the server's, without a path. Throws Error if the server has no such endpoints.
std::unique_ptr<TextCoder> server_coder(HttpClient client, std::string model);

}  // namespace quire
