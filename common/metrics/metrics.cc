#include "common/metrics/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "prometheus/text_serializer.h"

namespace tessera {
namespace {

Histogram::BucketBoundaries SecondsBuckets() {
  Histogram::BucketBoundaries bounds;
  for (const double decade : {1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0}) {
    for (const double in_decade : {1.0, 1.8, 3.2, 5.6}) bounds.push_back(decade * in_decade);
  }
  bounds.push_back(100);
  return bounds;
}

}  // namespace

prometheus::ClientMetric& MetricSamples::Add(const std::string& name, const std::string& help,
                                             prometheus::MetricType type,
                                             const MetricLabels& labels) {
  prometheus::MetricFamily& family = families_[name];
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [label, value] : labels) metric.label.push_back({label, value});
  return metric;
}

void MetricSamples::AddCounter(const std::string& name, const std::string& help,
                               const MetricLabels& labels, double value) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
}

void MetricSamples::AddGauge(const std::string& name, const std::string& help,
                             const MetricLabels& labels, double value) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void MetricSamples::AddHistogram(const std::string& name, const std::string& help,
                                 const MetricLabels& labels, absl::Span<const uint32_t> bounds,
                                 absl::Span<const uint64_t> counts, double sum) {
  prometheus::ClientMetric::Histogram& histogram =
      Add(name, help, prometheus::MetricType::Histogram, labels).histogram;
  uint64_t up_to_here = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    up_to_here += counts[i];
    const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({.cumulative_count = up_to_here, .upper_bound = bound});
  }
  histogram.sample_count = up_to_here;
  histogram.sample_sum = sum;
}

Counter& MetricsRegistry::AddCounter(const std::string& name, const std::string& help,
                                     const MetricLabels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
}

Gauge& MetricsRegistry::AddGauge(const std::string& name, const std::string& help,
                                 const MetricLabels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
}

Histogram& MetricsRegistry::AddSecondsHistogram(const std::string& name, const std::string& help,
                                                const MetricLabels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(
      labels, SecondsBuckets());
}

std::unique_ptr<MetricsRegistry::Registration> MetricsRegistry::AddCollector(Collector collector) {
  absl::MutexLock lock(&mu_);
  collectors_.emplace(++next_id_, std::move(collector));
  return std::make_unique<Registration>(this, next_id_);
}

void MetricsRegistry::RemoveCollector(uint64_t id) {
  absl::MutexLock lock(&mu_);
  collectors_.erase(id);
}

std::string MetricsRegistry::Text() const {
  MetricSamples samples;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, collector] : collectors_) collector(samples);
  }
  // Merges families, so that a name that both the registry and collectors use is printed once.
  for (prometheus::MetricFamily& family : registry_.Collect()) {
    prometheus::MetricFamily& all = samples.families_[family.name];
    family.metric.insert(family.metric.end(), all.metric.begin(), all.metric.end());
    all = std::move(family);
  }
  std::vector<prometheus::MetricFamily> families;
  for (auto& [name, family] : samples.families_) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tessera
