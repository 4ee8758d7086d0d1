#pragma once
// Metrics as Prometheus reads them: histograms that any thread may fill, and the text format 0.0.4.
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

// Counts by fixed buckets; no lock, no allocation after construction.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // ascending
  void observe(double value);
  int64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  friend class PrometheusText;
  std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_{0};
};

// a="1",b="2", with what the format asks for in values.
std::string prometheus_labels(std::initializer_list<std::pair<std::string_view, std::string_view>> labels);

// Metrics one after the other: a head, then its samples. Labels are as prometheus_labels() makes them, or empty.
class PrometheusText {
 public:
  // The name is that of the samples: a counter's ends in _total.
  void head(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::string_view name, std::string_view labels, double value);
  void sample(std::string_view name, std::string_view labels, int64_t value);
  void histogram(std::string_view name, std::string_view labels, const Histogram& histogram);

  std::string take() { return std::move(text_); }

 private:
  void begin_sample(std::string_view name, std::string_view labels);
  std::string text_;
};

}  // namespace quire
