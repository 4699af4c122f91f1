#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/mutex_checks.h"
#include "tests/simulator/seed_runner.h"
#include "tests/simulator/simulation.h"

// Runs of the simulator by seed. Exit code 0: all are right; 1: one is not.
int main(int argc, char** argv) {
  CLI::App app(
      "Simulates whole clusters, each in one thread and virtual time: the real master, ps and "
      "checkpoints, under kills,\n"
      "lost and repeated messages, power cuts and moves of partitions. Every sample must count "
      "once, and in sync\n"
      "mode every bit must be that of an undisturbed run. A seed always does the same.\n\n"
      "  tests/faults/simulate --seeds 1000           a thousand of them\n"
      "  tests/faults/simulate --seed 17 --verbose    what happened in one");
  uint64_t seeds = 1000;
  uint64_t first = 1;
  uint64_t only = 0;
  double minutes = 0;
  int processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool verbose = false;
  bool harsh = false;
  bool calm = false;
  bool expiring = false;
  bool admitting = false;
  bool spilling = false;
  app.add_option("--seeds", seeds, "How many")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}));
  app.add_option("--first", first, "The first of them")->capture_default_str();
  app.add_option("--seed", only, "This one alone");
  app.add_option("--minutes", minutes,
                 "As many as begin within so long; of --seeds, if it is given");
  app.add_option("--processes", processes, "that simulate at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_flag("--verbose", verbose, "Prints what happens, with its virtual time in seconds");
  app.add_flag("--harsh", harsh,
               "Several jobs, copies of their rows, and every kind of fault in each, more often");
  app.add_flag("--calm", calm,
               "Nothing fails, and jobs are scaled and suspended: none may return to a checkpoint")
      ->excludes("--harsh");
  app.add_flag("--expiring", expiring,
               "Sync jobs whose rows expire at checkpoints: no fault may change which are left")
      ->excludes("--harsh")
      ->excludes("--calm");
  app.add_flag(
         "--admitting", admitting,
         "Tables whose keys get rows after sightings, or by a draw: no fault may change which")
      ->excludes("--harsh")
      ->excludes("--calm")
      ->excludes("--expiring");
  app.add_flag("--spilling", spilling, "Rows leave the memory of ps for disk at any moment")
      ->excludes("--harsh")
      ->excludes("--calm")
      ->excludes("--expiring")
      ->excludes("--admitting");
  CLI11_PARSE(app, argc, argv);
  tessera::EndMutexChecks();
  tessera::InitLog("simulate", "off");
  uint64_t end = first + seeds;
  if (minutes > 0 && app.count("--seeds") == 0) end = UINT64_MAX;
  if (only > 0) {
    first = only;
    end = only + 1;
  }
  using tessera::simulator::Outcome;
  using tessera::simulator::Scenario;
  using tessera::simulator::SeedRunner;
  const char* const kind = harsh       ? " --harsh"
                           : calm      ? " --calm"
                           : expiring  ? " --expiring"
                           : admitting ? " --admitting"
                           : spilling  ? " --spilling"
                                       : "";
  const auto scenario_of = [&](uint64_t of) {
    if (harsh) return Scenario::Harsh(of);
    if (calm) return Scenario::Calm(of);
    if (expiring) return Scenario::Expiring(of);
    if (admitting) return Scenario::Admitting(of);
    return spilling ? Scenario::Spilling(of) : Scenario::Of(of);
  };
  std::vector<uint64_t> failed;
  uint64_t done = 0;
  tessera::simulator::Happened all;
  const absl::Time begin = absl::Now();
  absl::Time told = begin;
  uint64_t seed = first;
  const auto next = [&]() -> std::optional<uint64_t> {
    const bool late = minutes > 0 && absl::Now() - begin > absl::Minutes(minutes);
    return late || seed >= end ? std::nullopt : std::optional(seed++);
  };
  const auto count = [&](uint64_t ended, const Outcome& outcome) {
    ++done;
    all += outcome;
    if (!outcome.status.ok()) {
      failed.push_back(ended);
      std::printf("FAILED %s\n  %s\n", scenario_of(ended).ToString().c_str(),
                  outcome.status.ToString().c_str());
      std::fflush(stdout);
    }
    const absl::Time now = absl::Now();
    if (now - told > absl::Seconds(10)) {
      told = now;
      std::fprintf(stderr, "%llu seeds, %zu failed, %.0f a minute\n",
                   static_cast<unsigned long long>(done), failed.size(),
                   static_cast<double>(done) / absl::ToDoubleMinutes(now - begin));
    }
  };
  if (verbose) {
    while (const std::optional<uint64_t> one = next()) {
      const Scenario scenario = scenario_of(*one);
      std::printf("%s\n", scenario.ToString().c_str());
      count(*one, tessera::simulator::Simulate(scenario, [](const std::string& line) {
        std::printf("%s\n", line.c_str());
      }));
    }
  } else {
    SeedRunner(processes, [&](uint64_t one) {
      return tessera::simulator::Simulate(scenario_of(one));
    }).Run(next, count);
  }
  std::sort(failed.begin(), failed.end());
  const double took = absl::ToDoubleMinutes(absl::Now() - begin);
  absl::PrintF(
      "%d seeds, %d failed; %.1f hours of virtual time with %d deaths, %d moves of partitions, %d "
      "suspensions, %d other numbers of workers, %d returns to a checkpoint, %d samples set aside, "
      "%d steps lost by partial recovery, %d KiB of rows that left memory, %d evaluations and %d "
      "models compared, and %d events in %.1f s: %.0f seeds a minute\n",
      done, failed.size(), absl::ToDoubleHours(all.took), all.kills, all.moves, all.suspensions,
      all.rescales, all.restarts, all.set_aside, all.lost_steps, all.evicted_bytes >> 10,
      all.evaluations, all.compared, all.events, took * 60, static_cast<double>(done) / took);
  for (const uint64_t seed : failed) {
    std::printf("again: tests/faults/simulate --seed %llu%s --verbose\n",
                static_cast<unsigned long long>(seed), kind);
  }
  return failed.empty() && done > 0 ? 0 : 1;
}
