#include "common/failpoint.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr uint64_t kForEver = std::numeric_limits<uint64_t>::max();
constexpr int kCrashExitCode = 137;  // a shell's exit code for SIGKILL

enum class Action { kCrash, kError, kDelay };

struct Rule {
  size_t place = 0;
  Action action = Action::kCrash;
  absl::Duration delay;
  uint64_t first = 1;
  uint64_t last = kForEver;
  uint64_t every = 1;

  bool At(uint64_t hit) const { return hit >= first && hit <= last && (hit - first) % every == 0; }
};

// A thread at a failpoint goes on with the rules that it has found, whatever replaces them.
using RuleList = std::shared_ptr<const std::vector<Rule>>;
absl::Mutex rules_mu(absl::kConstInit);
RuleList& Rules() ABSL_EXCLUSIVE_LOCKS_REQUIRED(rules_mu) {
  static auto& rules = *new RuleList(std::make_shared<std::vector<Rule>>());
  return rules;
}
RuleList CurrentRules() {
  absl::MutexLock lock(&rules_mu);
  return Rules();
}
void SetRules(std::vector<Rule> rules) {
  absl::MutexLock lock(&rules_mu);
  Rules() = std::make_shared<std::vector<Rule>>(std::move(rules));
}
std::array<std::atomic<uint64_t>, std::size(kFailpoints)> hits{};

std::string AllNames() {
  return absl::StrJoin(kFailpoints, ", ", [](std::string* out, const FailpointPlace& place) {
    absl::StrAppend(out, absl::string_view(place.name.data(), place.name.size()));
  });
}

std::optional<size_t> FindPlace(absl::string_view name) {
  for (size_t i = 0; i < std::size(kFailpoints); ++i) {
    if (absl::string_view(kFailpoints[i].name.data(), kFailpoints[i].name.size()) == name) return i;
  }
  return std::nullopt;
}

bool ParseWhen(absl::string_view when, Rule& rule) {
  const auto number = [](absl::string_view text, uint64_t& out) {
    return absl::SimpleAtoi(text, &out) && out > 0;
  };
  if (const std::vector<absl::string_view> stride = absl::StrSplit(when, '+'); stride.size() == 2) {
    return number(stride[0], rule.first) && number(stride[1], rule.every);
  }
  const std::vector<absl::string_view> range = absl::StrSplit(when, '-');
  if (range.size() > 2 || !number(range[0], rule.first)) return false;
  if (range.size() == 1) {
    rule.last = rule.first;
    return true;
  }
  return range[1].empty() || (number(range[1], rule.last) && rule.last >= rule.first);
}

absl::StatusOr<Rule> ParseRule(absl::string_view text) {
  const auto wrong = [text](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFailpointsVariable, ": \"", text, "\": ", what...));
  };
  Rule rule;
  const std::vector<absl::string_view> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (sides.size() != 2) return wrong("expected name=action@when");
  const std::optional<size_t> place = FindPlace(sides[0]);
  if (!place.has_value()) {
    return wrong("there is no failpoint \"", sides[0], "\"; known are ", AllNames());
  }
  rule.place = *place;
  const std::vector<absl::string_view> parts = absl::StrSplit(sides[1], absl::MaxSplits('@', 1));
  absl::string_view action = parts[0];
  if (action == "crash") {
    rule.action = Action::kCrash;
  } else if (action == "error") {
    if (!kFailpoints[*place].fails) return wrong("nothing can fail there; crash or delay it");
    rule.action = Action::kError;
  } else if (absl::ConsumePrefix(&action, "delay:") && absl::ParseDuration(action, &rule.delay) &&
             rule.delay >= absl::ZeroDuration()) {
    rule.action = Action::kDelay;
  } else {
    return wrong("the action is \"", parts[0], "\", expected crash, error or delay:DURATION");
  }
  if (parts.size() == 2 && !ParseWhen(parts[1], rule)) {
    return wrong("the hits are \"", parts[1], "\", expected N, N-M, N- or N+K, counted from 1");
  }
  return rule;
}

}  // namespace

namespace internal_failpoint {

absl::Status Hit(size_t index) {
  const uint64_t hit = hits[index].fetch_add(1, std::memory_order_relaxed) + 1;
  const std::string name(kFailpoints[index].name);
  absl::Status status;
  const RuleList rules = CurrentRules();
  for (const Rule& rule : *rules) {
    if (rule.place != index || !rule.At(hit)) continue;
    switch (rule.action) {
      case Action::kCrash:
        SPDLOG_WARN("failpoint {}: the process ends at hit {}", name, hit);
        ::_exit(kCrashExitCode);
      case Action::kError:
        status = absl::UnavailableError(
            absl::StrCat("failpoint ", name, ": an injected error, at hit ", hit));
        break;
      case Action::kDelay:
        absl::SleepFor(rule.delay);
        break;
    }
  }
  return status;
}

}  // namespace internal_failpoint

absl::Status ArmFailpoints(const char* rules) {
  DisarmFailpoints();
  if (rules == nullptr) return absl::OkStatus();
  std::vector<Rule> parsed;
  for (const absl::string_view text : absl::StrSplit(rules, ';', absl::SkipWhitespace())) {
    TESSERA_ASSIGN_OR_RETURN(const Rule rule, ParseRule(absl::StripAsciiWhitespace(text)));
    parsed.push_back(rule);
  }
  if (parsed.empty()) return absl::OkStatus();
  SPDLOG_WARN("failpoints are armed, this process will fail on purpose: {}", rules);
  SetRules(std::move(parsed));
  internal_failpoint::armed.store(true);
  return absl::OkStatus();
}

void DisarmFailpoints() {
  internal_failpoint::armed.store(false);
  SetRules({});
  for (std::atomic<uint64_t>& count : hits) count.store(0);
}

}  // namespace tessera
