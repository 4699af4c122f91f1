#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

// What a process counts and measures, printed as Prometheus reads it. prometheus-cpp holds the
// numbers; here are names, buckets, and what is asked for only when somebody looks.
//
// Names: tessera_<room>_<what>_<unit>, counters with _total at the end. Metric and label names are
// constants of the code; one that Prometheus does not allow, or one name used as two types, is a
// bug and throws. Label values may be any text.
namespace tessera {

using Counter = prometheus::Counter;      // Increment(n): lock-free
using Gauge = prometheus::Gauge;          // Set, Increment, Decrement: lock-free
using Histogram = prometheus::Histogram;  // Observe: one short lock; for calls, not for keys
using MetricLabels = std::map<std::string, std::string>;

// What a collector says now. Used by the thread that prints.
class MetricSamples {
 public:
  void AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels,
                  double value);
  void AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels,
                double value);

 private:
  friend class MetricsRegistry;
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help,
                                prometheus::MetricType type, const MetricLabels& labels);

  std::map<std::string, prometheus::MetricFamily> families_;  // by name
};

// The metrics of one process, or of one server in a process that has several. Thread-safe.
class MetricsRegistry {
 public:
  // Asked whenever the metrics are printed, in the thread that prints, one print at a time: for
  // what is known already and need not be counted twice. Must not call the registry.
  using Collector = std::function<void(MetricSamples&)>;

  // Ends a collector: it neither runs nor will run once this is destroyed. Outlived by the
  // registry.
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

  // The same name and labels again are the same metric. It lives as long as the registry.
  Counter& AddCounter(const std::string& name, const std::string& help,
                      const MetricLabels& labels = {});
  Gauge& AddGauge(const std::string& name, const std::string& help,
                  const MetricLabels& labels = {});
  // Of durations in seconds: four buckets a decade from 10 us to 100 s, so that a percentile read
  // from them is off by a factor of 1.8 at most.
  Histogram& AddSecondsHistogram(const std::string& name, const std::string& help,
                                 const MetricLabels& labels = {});

  [[nodiscard]] std::unique_ptr<Registration> AddCollector(Collector collector)
      ABSL_LOCKS_EXCLUDED(mu_);

  // All of it in the text format 0.0.4, in order of names and labels.
  std::string Text() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void RemoveCollector(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  prometheus::Registry registry_;

  mutable absl::Mutex mu_;  // held while collectors run
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Collector> collectors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
