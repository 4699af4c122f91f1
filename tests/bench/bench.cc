#include "tests/bench/bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::bench {

void Register(const std::string& name, std::function<void(benchmark::State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(), [body = std::move(body)](benchmark::State& state) {
    for (auto _ : state) body(state);
  })->Iterations(1);
}

void Report(benchmark::State& state, const Result& result) {
  const std::string key = absl::StrCat(result.metric, " [", result.unit, "]");
  state.counters[key] = result.value;
  state.counters[absl::StrCat(key, " | ", result.limit_name, " | ", result.bar)] = result.limit;
}

void ReportTimes(benchmark::State& state, const std::string& metric,
                 const std::vector<double>& seconds, const std::string& limit_name,
                 const std::vector<double>& limits) {
  for (const double percent : {50.0, 99.0, 99.9}) {
    Report(state, {.metric = absl::StrCat(metric, " p", percent),
                   .value = 1e6 * Percentile(seconds, percent),
                   .unit = "us",
                   .limit_name = limit_name,
                   .limit = limits.empty() ? 0 : 1e6 * Percentile(limits, percent)});
  }
}

Medians Interleave(int rounds, absl::FunctionRef<double()> value,
                   absl::FunctionRef<double()> limit) {
  std::vector<double> values, limits;
  for (int round = 0; round <= rounds; ++round) {
    const double v = value();
    const double l = limit();
    if (round == 0) continue;
    values.push_back(v);
    limits.push_back(l);
  }
  return {Median(std::move(values)), Median(std::move(limits))};
}

double Seconds(absl::FunctionRef<void()> work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Rate(int runs, double units, absl::FunctionRef<void()> work) {
  const double seconds = Seconds([&] {
    for (int i = 0; i < runs; ++i) work();
  });
  return runs * units / seconds;
}

double CpuSeconds(absl::FunctionRef<void()> work) {
  const auto now = [] {
    timespec t = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 50); }

double Percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace tessera::bench
