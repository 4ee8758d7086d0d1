// What is counted of HTTP requests, and under which labels.
#include "server/http_metrics.h"

#include <gtest/gtest.h>

#include <ctime>

#include "fakes.h"
#include "server/app.h"

namespace quire {
namespace {

class HttpMetricsTest : public testing::Test {
 protected:
  HttpMetricsTest() {
    config_.root_path = "/llm";
    const auto answer = [this](int status) {
      return [this, status](const std::shared_ptr<HttpExchange>& exchange) {
        if (status == 0) return void(kept_ = exchange);
        exchange->respond({status, "text/plain", "12345", {}});
      };
    };
    std::vector<Route> routes = {{{"GET"}, "/metrics", answer(200)},
                                 {{"POST"}, "/v1/good", answer(200)},
                                 {{"POST"}, "/v1/bad", answer(503)},
                                 {{"POST"}, "/v1/later", answer(0)}};
    router_ = std::make_unique<Router>(config_, std::move(routes), &metrics_);
  }
  std::shared_ptr<FakeExchange> request(const char* method, const char* path) {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->request_.method = method;
    exchange->request_.path = path;
    exchange->request_.body = "123";
    (*router_)(exchange);
    return exchange;
  }
  std::string text() const {
    PrometheusText out;
    metrics_.render(out);
    return out.take();
  }
  void expect_line(const std::string& line) const {
    EXPECT_NE(text().find("\n" + line + "\n"), std::string::npos) << line << " in\n" << text();
  }

  ServerConfig config_;
  HttpMetrics metrics_;
  std::unique_ptr<Router> router_;
  std::shared_ptr<HttpExchange> kept_;
};

TEST_F(HttpMetricsTest, RequestsAreCountedByHandlerMethodAndStatus) {
  request("POST", "/v1/good");
  request("POST", "/llm/v1/good");
  request("GET", "/v1/good");
  request("POST", "/v1/bad");
  request("GET", "/nowhere/17");
  request("BREW", "/nowhere/18");
  request("GET", "/metrics");
  expect_line(R"(http_requests_total{handler="/v1/good",method="POST",status="2xx"} 2)");
  expect_line(R"(http_requests_total{handler="/v1/good",method="GET",status="4xx"} 1)");
  expect_line(R"(http_requests_total{handler="/v1/bad",method="POST",status="5xx"} 1)");
  expect_line(R"(http_requests_total{handler="none",method="GET",status="4xx"} 1)");
  expect_line(R"(http_requests_total{handler="none",method="other",status="4xx"} 1)");
  expect_line(R"(http_request_size_bytes_count{handler="/v1/bad"} 1)");
  expect_line(R"(http_request_size_bytes_sum{handler="/v1/bad"} 3)");
  expect_line(R"(http_response_size_bytes_sum{handler="/v1/bad"} 5)");
  expect_line(R"(http_request_duration_seconds_count{handler="/v1/good",method="POST"} 2)");
  expect_line(R"(http_request_duration_highr_seconds_count 6)");
  EXPECT_EQ(text().find("metrics\""), std::string::npos) << "probes are not counted";
}

TEST_F(HttpMetricsTest, AStreamCountsWhenItEnds) {
  request("POST", "/v1/later");
  EXPECT_EQ(text().find("later"), std::string::npos);
  kept_->begin_stream({200, "text/event-stream", "", {}});
  kept_->write("1234567");
  kept_->write("89");
  kept_->end_stream();
  kept_.reset();
  expect_line(R"(http_requests_total{handler="/v1/later",method="POST",status="2xx"} 1)");
  expect_line(R"(http_response_size_bytes_sum{handler="/v1/later"} 9)");

  const std::shared_ptr<FakeExchange> left = request("POST", "/v1/later");  // the client goes away: nobody answers
  bool told = false;
  kept_->on_disconnect([&told] { told = true; });
  left->disconnect();
  EXPECT_TRUE(told);
  kept_.reset();
  expect_line(R"(http_requests_total{handler="/v1/later",method="POST",status="4xx"} 1)");

  request("POST", "/v1/later");  // the client waits: it gets the server's error
  kept_.reset();
  expect_line(R"(http_requests_total{handler="/v1/later",method="POST",status="5xx"} 1)");
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
  PrometheusText out;
  render_process_metrics(out);
  const std::string text = out.take();
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GT(value("process_cpu_seconds_total"), -0.5);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(value("process_start_time_seconds"), now + 5);
  EXPECT_GE(value("process_start_time_seconds"), now - 3600);
}

}  // namespace
}  // namespace quire
