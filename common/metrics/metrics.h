#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

// The counters and measurements of a process, printed in Prometheus' format. prometheus-cpp holds
// the numbers; this file adds names, buckets, and collectors that run only when the metrics are
// printed.
//
// Names: tessera_<room>_<what>_<unit>; counters end with _total. Metric and label names are
// constants of the code; a name that Prometheus does not allow, or one used as two types, is a bug
// and throws. Label values may be any text.
namespace tessera {

using Counter = prometheus::Counter;      // Increment(n): lock-free
using Gauge = prometheus::Gauge;          // Set, Increment, Decrement: lock-free
using Histogram = prometheus::Histogram;  // Observe: one short lock; for calls, not for keys
using MetricLabels = std::map<std::string, std::string>;

// The values that a collector reports now. Used by the thread that prints.
class MetricSamples {
 public:
  void AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels,
                  double value);
  void AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels,
                double value);
  // `bounds`: the highest value of each bucket but the last, which has none; `counts` by bucket.
  void AddHistogram(const std::string& name, const std::string& help, const MetricLabels& labels,
                    absl::Span<const uint32_t> bounds, absl::Span<const uint64_t> counts,
                    double sum);

 private:
  friend class MetricsRegistry;
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help,
                                prometheus::MetricType type, const MetricLabels& labels);

  std::map<std::string, prometheus::MetricFamily> families_;  // by name
};

// The metrics of one process, or of one server in a process that has several. Thread-safe.
class MetricsRegistry {
 public:
  // Runs whenever the metrics are printed, in the printing thread, one print at a time: for values
  // that are known already and need not be counted twice. Must not call the registry.
  using Collector = std::function<void(MetricSamples&)>;

  // Removes its collector when destroyed: the collector neither runs nor will run after that. The
  // registry outlives it.
  class Registration {
   public:
    Registration(MetricsRegistry* registry, uint64_t id) : registry_(registry), id_(id) {}
    ~Registration() { registry_->RemoveCollector(id_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    MetricsRegistry* const registry_;
    const uint64_t id_;
  };

  // Calls with the same name and labels return the same metric, which lives as long as the
  // registry.
  Counter& AddCounter(const std::string& name, const std::string& help,
                      const MetricLabels& labels = {});
  Gauge& AddGauge(const std::string& name, const std::string& help,
                  const MetricLabels& labels = {});
  // A histogram of durations in seconds: four buckets a decade from 10 us to 100 s, so that a
  // percentile read from them is off by a factor of 1.8 at most.
  Histogram& AddSecondsHistogram(const std::string& name, const std::string& help,
                                 const MetricLabels& labels = {});

  [[nodiscard]] std::unique_ptr<Registration> AddCollector(Collector collector)
      ABSL_LOCKS_EXCLUDED(mu_);

  // All metrics in the text format 0.0.4, in order of names and labels.
  std::string Text() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void RemoveCollector(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  prometheus::Registry registry_;

  mutable absl::Mutex mu_;  // held while collectors run
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Collector> collectors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
