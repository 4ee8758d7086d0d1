// The text format 0.0.4, to the byte.
#include "base/prometheus.h"

#include <gtest/gtest.h>

#include <thread>

namespace quire {
namespace {

TEST(Prometheus, HistogramsAreCumulativeAndBoundsBelongToTheirBucket) {
  Histogram histogram({0.5, 1, 25});
  for (const double value : {0.25, 0.5, 0.75, 1.0, 1.5, 25.0, 26.0}) histogram.observe(value);
  PrometheusText out;
  out.head("h", "histogram", "Help.");
  out.histogram("h", "a=\"1\"", histogram);
  EXPECT_EQ(out.take(), R"(# HELP h Help.
# TYPE h histogram
h_bucket{a="1",le="0.5"} 2
h_bucket{a="1",le="1.0"} 4
h_bucket{a="1",le="25.0"} 6
h_bucket{a="1",le="+Inf"} 7
h_count{a="1"} 7
h_sum{a="1"} 55
)");
  out.histogram("h", "", Histogram({2}));
  EXPECT_EQ(out.take(), "h_bucket{le=\"2.0\"} 0\nh_bucket{le=\"+Inf\"} 0\nh_count 0\nh_sum 0\n");
}

TEST(Prometheus, LabelsAreEscaped) {
  EXPECT_EQ(prometheus_labels({{"a", "x\"y\\z\n"}, {"b", "ü {}"}}), R"(a="x\"y\\z\n",b="ü {}")");
  PrometheusText out;
  out.sample("m", "", int64_t{5});
  out.sample("m_total", prometheus_labels({{"a", "1"}}), 0.5);
  EXPECT_EQ(out.take(), "m 5\nm_total{a=\"1\"} 0.5\n");
}

TEST(Prometheus, NothingIsLostBetweenThreads) {
  Histogram histogram({1, 2});
  constexpr int kTimes = 20000;
  const auto fill = [&] {
    for (int i = 0; i < kTimes; ++i) histogram.observe(1.5);
  };
  std::thread other(fill);
  fill();
  other.join();
  EXPECT_EQ(histogram.count(), 2 * kTimes);
  EXPECT_EQ(histogram.sum(), 1.5 * 2 * kTimes);
}

}  // namespace
}  // namespace quire
