#pragma once
// `quire run-batch`: a file of requests, one JSON object in each line, answered by a model in this process.
#include <cstdint>
#include <istream>
#include <ostream>

#include "cli/batch_exchange.h"
#include "server/http_types.h"

namespace quire {

struct BatchCounts {
  int64_t requests = 0, failed = 0;
};

// Reads lines {custom_id, method, url, body} from `in`, gives each to `handler` as the server would, at most
// `max_inflight` at once, and writes one line for each to `out`, in the order of `in`. A line that is no request, or a
// request that fails, becomes an entry with an error. Throws Error(kInternal) if `out` fails, kInvalidArgument if `in`
// has a line of more than 64 MiB. However it ends, nothing that the handler started is at work any more.
// `thread` stands in for the connections' and must outlive what the handler starts.
BatchCounts run_batch(std::istream& in, std::ostream& out, const HttpHandler& handler, WorkThread& thread,
                      int64_t max_inflight);

}  // namespace quire
