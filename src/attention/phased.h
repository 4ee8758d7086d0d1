#pragma once
// The backend that splits a batch into decode, extend and prefill. On the CPU two kernels serve the three phases:
// decode splits long contexts over the workers, and extend and prefill, joined, take tiles of query rows.
#include <memory>
#include <string>
#include <vector>

#include "attention/backend.h"

namespace quire {

std::unique_ptr<AttentionBackend> make_phased_backend();

// Reasons why it can't serve the group; empty = it can.
std::vector<std::string> phased_backend_refusals(const AttentionGroup& group);

}  // namespace quire
