#pragma once
// The backend that splits a batch into decode, extend and prefill, and the one that doesn't. On the CPU two kinds of
// work serve the three phases: a decode's partitions are spread over the workers where requests are few and contexts
// long, and extend and prefill, which differ in nothing, take tiles of query rows; an extend may gather its context
// first. The joined backend sees one extend. All give the same bits: attention.h fixes the order of arithmetic.
#include <memory>
#include <string>
#include <vector>

#include "attention/backend.h"

namespace quire {

std::unique_ptr<AttentionBackend> make_phased_backend(ExtendStrategy strategy = ExtendStrategy::kPaged);
std::unique_ptr<AttentionBackend> make_joined_backend(ExtendStrategy strategy = ExtendStrategy::kPaged);

// Reasons why they can't serve the group; empty = they can.
std::vector<std::string> paged_backend_refusals(const AttentionGroup& group);

}  // namespace quire
