#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/mutex_checks.h"
#include "common/status_macros.h"
#include "ps/parameter_server.h"
#include "tests/overload/ps_process.h"
#include "tests/overload/push_load.h"

namespace tessera::overload {
namespace {

struct Plan {
  double minutes = 60;
  double overload = 2;
  uint64_t rows = 4'000'000;
  uint64_t memory_bytes = 32 << 20;
  uint64_t max_queued_bytes = 0;  // 0: as many as a tessera-ps with that memory
  uint64_t seed = 1;
  std::string folder = "/tmp";
};

// The median of memory may grow by so much from the second fifth of the run, when all rows have
// come, to the last. Shorter runs have no such second fifth.
constexpr double kMostGrowth = 1.05;
constexpr double kLeastMinutes = 5;

// What a ps takes beside its rows and the requests in hand: libraries, threads, the disk's tier,
// memory that it shares with the ranks, an allocator's slack. With less than twice of that rows
// have half of what it is given, and it is larger.
constexpr uint64_t kBesideBytes = 112 << 20;

uint64_t MedianOf(std::vector<uint64_t> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// The sum of the metrics whose name and labels hold all of `words`.
double SumOf(const std::string& metrics, const std::vector<std::string>& words) {
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    const auto has = [&](const std::string& word) { return absl::StrContains(line, word); };
    double value = 0;
    if (absl::StartsWith(line, "#") || !std::all_of(words.begin(), words.end(), has)) continue;
    if (absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) sum += value;
  }
  return sum;
}

absl::Status Soak(Plan plan) {
  const std::string folder = absl::StrCat(plan.folder, "/tessera-soak-", ::getpid());
  struct Removed {
    const std::string& folder;
    ~Removed() { std::filesystem::remove_all(folder); }
  } removed{folder};
  std::filesystem::create_directories(folder);
  if (plan.max_queued_bytes == 0) {
    ps::ParameterServer::Options with_that_memory;
    with_that_memory.BoundBeside(plan.memory_bytes);
    plan.max_queued_bytes = with_that_memory.max_queued_bytes;
  }
  TESSERA_ASSIGN_OR_RETURN(const auto ps,
                           PsProcess::Start({.folder = folder,
                                             .memory_bytes = plan.memory_bytes,
                                             .max_queued_bytes = plan.max_queued_bytes}));
  PushLoad load({.ps = ps->address(),
                 .rows = plan.rows,
                 .offered_bytes = static_cast<uint64_t>(plan.overload *
                                                        static_cast<double>(plan.max_queued_bytes)),
                 .seed = plan.seed});
  TESSERA_RETURN_IF_ERROR(load.Open());
  absl::PrintF(
      "%d rows of %d floats that may be in %d MiB, %.1f times the %d MiB of requests that "
      "the ps takes are offered at once\n",
      load.distinct_rows(), PushLoad::kDim, plan.memory_bytes >> 20, plan.overload,
      plan.max_queued_bytes >> 20);
  std::atomic<bool> stop = false;
  std::vector<absl::Status> ended(2);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ended[rank] = load.Run(rank, stop);
      if (!ended[rank].ok()) stop = true;
    });
  }
  const absl::Time begin = absl::Now();
  const absl::Duration length = absl::Minutes(plan.minutes);
  const absl::Duration tell_every = std::clamp(length / 10, absl::Seconds(1), absl::Minutes(1));
  std::vector<uint64_t> fifths[5];  // of samples of its resident bytes
  uint64_t most = 0;
  absl::Time told = begin;
  uint64_t told_keys = 0;
  while (!stop && absl::Now() - begin < length) {
    absl::SleepFor(absl::Milliseconds(200));
    const uint64_t resident = ps->ResidentBytes();
    const absl::Time now = absl::Now();
    const double part = absl::FDivDuration(now - begin, length);
    fifths[std::min(4, static_cast<int>(5 * part))].push_back(resident);
    most = std::max(most, resident);
    if (now - told < tell_every) continue;
    const uint64_t keys = load.pushed_keys();
    absl::PrintF(
        "%s: %.2f million keys/s pushed, %.1f million pulled and right so far, %d MiB resident\n",
        absl::FormatDuration(absl::Trunc(now - begin, absl::Seconds(1))),
        static_cast<double>(keys - told_keys) / absl::ToDoubleSeconds(now - told) / 1e6,
        static_cast<double>(load.pulled_keys()) / 1e6, resident >> 20);
    std::fflush(stdout);
    told = now;
    told_keys = keys;
  }
  stop = true;
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : ended) TESSERA_RETURN_IF_ERROR(status);
  TESSERA_RETURN_IF_ERROR(load.Verify());
  TESSERA_ASSIGN_OR_RETURN(const std::string metrics, ps->Metrics());
  const double refused =
      SumOf(metrics, {"tessera_ps_refused_requests_total", "RESOURCE_EXHAUSTED"});
  const uint64_t early = MedianOf(fifths[1]), late = MedianOf(fifths[4]);
  absl::PrintF(
      "%d million keys pushed, every row is right; %.0f requests pushed back; resident in the "
      "median %d MiB in "
      "the second fifth, %d MiB in the last, never more than %d MiB\n",
      load.pushed_keys() / 1'000'000, refused, early >> 20, late >> 20, most >> 20);
  std::fflush(stdout);
  if (refused == 0) return absl::FailedPreconditionError("the ps was never overloaded");
  // Requests in hand and answers that nobody has taken are bounded apart.
  const uint64_t allowed =
      std::max(plan.memory_bytes, plan.memory_bytes / 2 + 2 * plan.max_queued_bytes + kBesideBytes);
  if (most > allowed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ps had ", most, " bytes in memory, expected at most ", allowed));
  }
  const bool grew = static_cast<double>(late) > kMostGrowth * static_cast<double>(early);
  if (grew && plan.minutes >= kLeastMinutes) {
    return absl::ResourceExhaustedError(absl::StrCat("the ps grew from ", early, " to ", late,
                                                     " bytes, expected at most ", kMostGrowth,
                                                     " times as much"));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera::overload

// A ps under more than it can take. Exit code 0: its memory stayed as it was, and all rows are
// right.
int main(int argc, char** argv) {
  CLI::App app(
      "Soaks a ps in more than it takes: two ranks push and pull without a pause, one through the "
      "network and one through\n"
      "shared memory, rows that memory has no room for. It must push back, stay as large as it "
      "was, "
      "and have every row right.\n\n"
      "  tests/faults/soak                  an hour of it\n"
      "  tests/faults/soak --minutes 0.5    a glance, which does not look at growth");
  tessera::overload::Plan plan;
  app.add_option("--minutes", plan.minutes, "How long")
      ->capture_default_str()
      ->check(CLI::Range(0.05, 10000.0));
  app.add_option("--overload", plan.overload, "What is offered at once, over what the ps takes")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 100.0));
  app.add_option("--rows", plan.rows, "Keys to draw from, by Zipf's law")
      ->capture_default_str()
      ->check(CLI::Range(100'000, 100'000'000));
  app.add_option("--memory", plan.memory_bytes, "Of the ps, e.g. 256MiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--queue", plan.max_queued_bytes,
                 "Of requests that the ps takes at once. Default: as tessera-ps with that memory")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--folder", plan.folder, "Where rows go that leave memory")->capture_default_str();
  app.add_option("--seed", plan.seed, "Of the batches")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  tessera::EndMutexChecks();
  std::signal(SIGPIPE, SIG_IGN);  // of a ps that has died: the status says so
  tessera::InitLog("soak", "error");
  const absl::Status status = tessera::overload::Soak(plan);
  if (status.ok()) return 0;
  std::fprintf(stderr, "FAILED: %s\n", status.ToString().c_str());
  return 1;
}
