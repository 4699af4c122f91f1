#include "common/metrics/metrics.h"

#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/metrics/process_metrics.h"
#include "common/rpc/metrics_service.h"
#include "common/rpc/server.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/common/certificates.h"
#include "tests/common/metric_value.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, ArePrintedAsPrometheusReadsThem) {
  MetricsRegistry registry;
  registry.AddCounter("b_total", "Things.", {{"kind", "x"}}).Increment(3);
  registry.AddCounter("b_total", "Things.", {{"kind", "a\"b\\c\nd"}}).Increment(0.5);
  registry.AddGauge("a_bytes", "Level.").Set(-2);
  EXPECT_EQ(registry.Text(),
            "# HELP a_bytes Level.\n"
            "# TYPE a_bytes gauge\n"
            "a_bytes -2\n"
            "# HELP b_total Things.\n"
            "# TYPE b_total counter\n"
            "b_total{kind=\"a\\\"b\\\\c\\nd\"} 0.5\n"
            "b_total{kind=\"x\"} 3\n");
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  MetricsRegistry registry;
  Counter& first = registry.AddCounter("n_total", "N.", {{"l", "1"}});
  EXPECT_EQ(&registry.AddCounter("n_total", "N.", {{"l", "1"}}), &first);
  EXPECT_NE(&registry.AddCounter("n_total", "N.", {{"l", "2"}}), &first);
  Histogram& seconds = registry.AddSecondsHistogram("s_seconds", "S.");
  EXPECT_EQ(&registry.AddSecondsHistogram("s_seconds", "S."), &seconds);
}

TEST(Metrics, NothingIsLostWhenManyThreadsCountAndOnePrints) {
  MetricsRegistry registry;
  Counter& counter = registry.AddCounter("n_total", "N.");
  Histogram& seconds = registry.AddSecondsHistogram("s_seconds", "S.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        counter.Increment();
        seconds.Observe(0.001);
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_THAT(registry.Text(), HasSubstr("n_total"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(registry.Text(), HasSubstr("\nn_total 40000\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("\ns_seconds_count 40000\n"));
}

TEST(Metrics, APercentileOfSecondsIsWithinAFactorOf1Point8) {
  MetricsRegistry registry;
  registry.AddSecondsHistogram("s_seconds", "S.").Observe(0.2);
  std::vector<double> bounds;
  double bucket_of_it = 0;
  for (const absl::string_view line : absl::StrSplit(registry.Text(), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, '"');
    double bound = 0;
    if (!absl::StartsWith(line, "s_seconds_bucket") || parts[1] == "+Inf") continue;
    ASSERT_TRUE(absl::SimpleAtod(parts[1], &bound)) << line;
    bounds.push_back(bound);
    if (bucket_of_it == 0 && absl::EndsWith(parts[2], " 1")) bucket_of_it = bound;
  }
  ASSERT_EQ(bounds.size(), 29u);
  EXPECT_DOUBLE_EQ(bounds.front(), 1e-5);
  EXPECT_DOUBLE_EQ(bounds.back(), 100);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_GT(bounds[i], bounds[i - 1]);
    EXPECT_LE(bounds[i] / bounds[i - 1], 1.8 + 1e-9);
  }
  EXPECT_DOUBLE_EQ(bucket_of_it, 0.32);
}

TEST(Metrics, ACollectorIsAskedAtEveryPrintUntilItIsTakenBack) {
  MetricsRegistry registry;
  registry.AddGauge("rows", "Rows.", {{"table", "b"}}).Set(1);
  int asked = 0;
  auto registration = registry.AddCollector([&](MetricSamples& samples) {
    samples.AddGauge("rows", "Rows.", {{"table", "a"}}, ++asked);
    samples.AddCounter("seen_total", "Seen.", {}, 7);
  });
  EXPECT_EQ(registry.Text(),
            "# HELP rows Rows.\n# TYPE rows gauge\nrows{table=\"a\"} 1\nrows{table=\"b\"} 1\n"
            "# HELP seen_total Seen.\n# TYPE seen_total counter\nseen_total 7\n");
  EXPECT_THAT(registry.Text(), HasSubstr("rows{table=\"a\"} 2\n"));
  registration.reset();
  EXPECT_THAT(registry.Text(), Not(HasSubstr("table=\"a\"")));
  EXPECT_EQ(asked, 2);
}

TEST(Metrics, ACollectorsHistogramIsCumulative) {
  MetricsRegistry registry;
  const auto registration = registry.AddCollector([](MetricSamples& samples) {
    samples.AddHistogram("age", "Age.", {{"table", "a"}}, {0, 5}, {2, 0, 3}, 31);
  });
  EXPECT_EQ(registry.Text(),
            "# HELP age Age.\n# TYPE age histogram\nage_count{table=\"a\"} 5\n"
            "age_sum{table=\"a\"} 31\nage_bucket{table=\"a\",le=\"0\"} 2\n"
            "age_bucket{table=\"a\",le=\"5\"} 2\nage_bucket{table=\"a\",le=\"+Inf\"} 5\n");
}

TEST(Metrics, EveryProcessTellsItsBuildStartAndUptimeOverItsServer) {
  MetricsRegistry registry;
  const Certificates certificates("metrics");
  const auto security = Security::Load(certificates.ForServer()).value();
  const auto registration = AddProcessMetrics(registry, "ps", security.get());
  MetricsService service(&registry);
  const auto server = RpcServer::Start({}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channels = NewNetworkChannels();
  const auto stub = v1::MetricsService::NewStub(channels->Connect((*server)->address()));
  grpc::ClientContext context;
  v1::GetMetricsResponse response;
  ASSERT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
  EXPECT_THAT(response.text(), HasSubstr(std::string("version=\"") + kVersion + "\"} 1\n"));
  EXPECT_THAT(response.text(), HasSubstr("tessera_build_info{process=\"ps\""));
  EXPECT_THAT(response.text(), testing::ContainsRegex("\nprocess_resident_memory_bytes [1-9]"));
  const auto value = [&](const std::string& name) { return MetricValue(response.text(), name); };
  const double started = value("process_start_time_seconds");
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(started + value("tessera_process_uptime_seconds"), now, 5);
  EXPECT_GT(value("tessera_process_uptime_seconds"), 0);
  EXPECT_GT(value("process_cpu_seconds_total"), 0);
  EXPECT_LE(value("process_cpu_seconds_total"),
            value("tessera_process_uptime_seconds") * std::thread::hardware_concurrency() + 1);
  EXPECT_GE(value("process_open_fds"), 4) << "three, and the server's";
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  EXPECT_NEAR(value("tessera_process_certificate_seconds") / 86400, 90, 1);
}

}  // namespace
}  // namespace tessera
