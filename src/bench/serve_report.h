#pragma once
// From the outcomes of a serving benchmark to its figures, its table and its JSON.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/serve.h"
#include "bench/serve_answers.h"

namespace quire {

// One kind of time over all requests, in milliseconds; zeros if there is none.
struct TimeFigures {
  std::string name;  // of kServeMetrics
  double mean = 0, median = 0, deviation = 0;
  std::vector<double> percentiles;  // of ServePlan::percentiles
};

struct ServeReport {
  double seconds = 0;  // from the first request to the last answer
  int64_t completed = 0, failed = 0, good = 0, input_tokens = 0, output_tokens = 0;
  double peak_output_rate = 0;   // pieces of answers in the busiest second
  int64_t peak_concurrency = 0;  // requests at work within one second
  std::vector<TimeFigures> times;

  double rate(int64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

// Every outcome has its token counts (those of failed requests don't count).
ServeReport make_serve_report(const std::vector<RequestOutcome>& outcomes, double seconds, const ServePlan& plan);

std::string serve_text(const ServeReport& report, const ServeOptions& options, const ServePlan& plan);

// What the report doesn't know.
struct ServeIdentity {
  std::string date;  // "20260131-235959"
  std::string model_id;
  std::optional<std::string> tokenizer_id;
};
std::string serve_json(const ServeReport& report, const std::vector<RequestOutcome>& outcomes,
                       const ServeOptions& options, const ServePlan& plan, const ServeIdentity& identity);

// Where --save-result writes.
std::string serve_result_path(const ServeOptions& options, const ServeIdentity& identity);

}  // namespace quire
