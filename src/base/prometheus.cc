#include "base/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace quire {
namespace {

// As Python prints it, since Prometheus' Python client does: whole numbers with ".0".
std::string bound_text(double x) {
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

int64_t Histogram::count() const {
  int64_t total = 0;
  for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
  return total;
}

std::string prometheus_labels(std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    if (!out.empty()) out += ',';
    out += name;
    out += "=\"";
    for (const char c : value) {
      if (c == '\\' || c == '"') out += '\\';
      if (c == '\n') {
        out += "\\n";
      } else {
        out += c;
      }
    }
    out += '"';
  }
  return out;
}

void PrometheusText::head(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

void PrometheusText::begin_sample(std::string_view name, std::string_view labels) {
  text_ += name;
  if (labels.empty()) return;
  text_ += '{';
  text_ += labels;
  text_ += '}';
}

void PrometheusText::sample(std::string_view name, std::string_view labels, double value) {
  begin_sample(name, labels);
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void PrometheusText::sample(std::string_view name, std::string_view labels, int64_t value) {
  begin_sample(name, labels);
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void PrometheusText::histogram(std::string_view name, std::string_view labels, const Histogram& histogram) {
  int64_t total = 0;
  const std::string_view comma = labels.empty() ? "" : ",";
  for (size_t i = 0; i < histogram.counts_.size(); ++i) {
    total += histogram.counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < histogram.bounds_.size() ? bound_text(histogram.bounds_[i]) : "+Inf";
    fmt::format_to(std::back_inserter(text_), "{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bound, total);
  }
  sample(std::string(name) + "_count", labels, total);
  sample(std::string(name) + "_sum", labels, histogram.sum());
}

}  // namespace quire
