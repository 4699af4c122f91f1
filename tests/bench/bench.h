#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "benchmark/benchmark.h"

// What the benchmarks share. A program is one subject: a *_bench.cc that defines
// RegisterBenchmarks, linked with main.cc. tests/bench/run reads what Report writes.
namespace tessera::bench {

struct Options {
  // Small sizes: shows that the benchmark works, not how fast the code is.
  bool short_run = false;
  // Exists, is empty at first, and is removed by whoever started the program.
  std::string work_folder;
  // Runs what is written in Python, with PyTorch if that is to be a limit.
  std::string python = "/usr/bin/python3";
};

// Defined by each program.
void RegisterBenchmarks(const Options& options);

// `body` runs once; it measures by itself and reports with Report.
void Register(const std::string& name, std::function<void(benchmark::State&)> body);

// One line of the table.
struct Result {
  std::string metric;  // what of this benchmark: "pull", "p99"; the line is <benchmark>/<metric>
  double value = 0;
  std::string unit;
  // What could be reached at best, or the peer, measured in the same run in the same unit.
  std::string limit_name;
  double limit = 0;
  // On value / limit, ">= 0.5" or "<= 20"; empty: nothing is asked.
  std::string bar = "";
};
void Report(benchmark::State& state, const Result& result);

// Three lines, "<metric> p50", p99 and p99.9, in microseconds, of calls that took so many seconds.
// `limits`: those of the limit, if it is calls, too.
void ReportTimes(benchmark::State& state, const std::string& metric,
                 const std::vector<double>& seconds, const std::string& limit_name = "",
                 const std::vector<double>& limits = {});

struct Medians {
  double value;
  double limit;
};
// Runs both in turn, so that what else the machine does falls on both, and takes the median of
// each. The first round only warms up.
Medians Interleave(int rounds, absl::FunctionRef<double()> value,
                   absl::FunctionRef<double()> limit);

double Seconds(absl::FunctionRef<void()> work);
// Of so many runs of `work` one after another, each of which does `units`: units a second.
double Rate(int runs, double units, absl::FunctionRef<void()> work);
// Of the calling thread on a processor: what one thread can do, whatever else runs.
double CpuSeconds(absl::FunctionRef<void()> work);
double Median(std::vector<double> values);
// The smallest of `values` that `percent` of them do not exceed.
double Percentile(std::vector<double> values, double percent);

}  // namespace tessera::bench
