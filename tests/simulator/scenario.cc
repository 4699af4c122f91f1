#include "tests/simulator/scenario.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/partition.h"
#include "common/random.h"

namespace tessera::simulator {

namespace {

// When something fails.
template <typename Of>
auto FaultsOf(Of& s) {
  return std::array{&s.kills, &s.stops, &s.leaves, &s.cuts, &s.full, &s.broken, &s.jumps, &s.power};
}

// Copies of rows where there are push logs, and somebody who is free.
void AddCopiesAndSpares(Scenario& s) {
  if (s.job.push_log > v1::RecoverySpec::OFF) s.job.replicas = 1;
  s.all_workers = std::max(s.all_workers, s.workers + 1);
  s.all_ps = std::max(s.all_ps, s.ps + 1 + s.job.replicas);
}

void MakeSync(Scenario& s) {
  s.job.consistency = v1::SYNC;
  s.job.max_lead = 0;
  s.job.partial = false;
}

// Of a sync job. No disk fails: a checkpoint that one refuses may leave rows that would have gone.
void Expire(Scenario& s) {
  s.job.expires = true;
  s.job.poison.reset();
  for (absl::Duration* const never : {&s.full, &s.broken, &s.rescales}) {
    *never = absl::ZeroDuration();
  }
}

}  // namespace

Scenario Scenario::Of(uint64_t seed) {
  const uint64_t key = StreamKey(RandomFor::kGenerator, seed, NameHash("scenario"));
  uint64_t draws = 0;
  const auto below = [&](uint64_t n) { return RandomBelow(key, draws++, n); };
  const auto chance = [&](double p) { return RandomUniformDouble(key, draws++) < p; };
  const auto every = [&](double p, double least, double most) {
    const double drawn = least + (most - least) * RandomUniformDouble(key, draws++);
    return chance(p) ? absl::Seconds(drawn) : absl::ZeroDuration();
  };
  Scenario s;
  s.seed = seed;
  s.ps = 1 + static_cast<uint32_t>(below(3));
  s.all_ps = s.ps + static_cast<uint32_t>(below(3));
  s.workers = 1 + static_cast<uint32_t>(below(3));
  s.all_workers = s.workers + static_cast<uint32_t>(below(2));
  s.job.seed = 1 + below(3);
  constexpr v1::Consistency kModes[] = {v1::SYNC, v1::SYNC, v1::ASYNC, v1::BOUNDED};
  s.job.consistency = kModes[below(4)];
  s.job.max_lead = s.job.consistency == v1::BOUNDED ? 1 + static_cast<uint32_t>(below(3)) : 0;
  constexpr v1::RecoverySpec::PushLog kLogs[] = {v1::RecoverySpec::OFF, v1::RecoverySpec::ASYNC,
                                                 v1::RecoverySpec::FSYNC};
  s.job.push_log = kLogs[below(3)];
  s.job.epochs = 2 + static_cast<uint32_t>(below(2));
  s.job.checkpoint_steps = chance(0.8) ? 3 + below(20) : 0;
  s.job.validates = chance(0.6);
  s.job.tests = chance(0.3);
  s.job.keep_best = chance(0.3);
  s.until = absl::Seconds(5 + below(25));
  s.kills = every(0.7, 1, 8);
  s.stops = every(0.4, 2, 10);
  s.cuts = every(0.4, 1, 8);
  s.scales = every(s.all_ps > 1 ? 0.5 : 0, 1, 6);
  s.power = every(0.15, 5, 20);
  s.full = every(0.2, 2, 10);
  s.broken = every(0.15, 3, 15);
  s.jumps = every(0.2, 1, 10);
  if (chance(0.5)) s.lost = 0.002 * static_cast<double>(1 + below(10));
  if (chance(0.5)) s.repeated = 0.01 * static_cast<double>(1 + below(10));
  if (chance(0.5)) s.slow = 0.01 * static_cast<double>(1 + below(10));
  if (chance(0.5)) s.danger = 0.0005 * static_cast<double>(1 + below(8));
  s.suspends = every(0.4, 1, 8);
  // In `sync` the bits depend on the number of workers.
  s.rescales = every(s.job.consistency != v1::SYNC && s.all_workers > 1 ? 0.5 : 0.1, 1, 6);
  s.jobs = chance(0.4) ? 2 + static_cast<uint32_t>(below(2)) : 1;
  if (s.jobs > 1) s.all_workers += static_cast<uint32_t>(below(s.workers + 1));
  s.leaves = every(0.4, 1, 8);
  if (s.job.push_log > v1::RecoverySpec::OFF && chance(0.5)) {
    s.job.replicas = 1;
    s.all_ps += static_cast<uint32_t>(below(s.ps + 1));
  }
  if (chance(0.15)) {
    s.job.poison = below(s.job.records);
    s.job.poison_kills = chance(0.5);
  }
  s.job.partial =
      s.job.consistency != v1::SYNC && s.job.push_log == v1::RecoverySpec::OFF && chance(0.5);
  // Each costs time at every restore and cut.
  constexpr uint32_t kPartitions[] = {8, 64, 512};
  s.partitions = chance(0.05) ? kDefaultPartitions : kPartitions[below(3)];
  return s;
}

Scenario Scenario::Harsh(uint64_t seed) {
  Scenario s = Of(seed);
  const uint64_t key = StreamKey(RandomFor::kGenerator, seed, NameHash("harsh"));
  uint64_t draws = 0;
  for (absl::Duration* const every : {&s.kills, &s.stops, &s.leaves, &s.cuts, &s.scales,
                                      &s.suspends, &s.full, &s.broken, &s.jumps, &s.power}) {
    const absl::Duration drawn = absl::Seconds(1 + 7 * RandomUniformDouble(key, draws++));
    *every = *every > absl::ZeroDuration() ? *every / 2 : drawn;
  }
  if (s.job.consistency != v1::SYNC && s.rescales == absl::ZeroDuration()) {
    s.rescales = absl::Seconds(3);
  }
  for (double* const share : {&s.lost, &s.repeated, &s.slow}) *share = std::max(*share, 0.01);
  s.danger = std::max(s.danger, 0.002);
  s.until *= 2;
  s.jobs = std::max(s.jobs, 2u);
  AddCopiesAndSpares(s);
  return s;
}

Scenario Scenario::Calm(uint64_t seed) {
  Scenario s = Of(seed);
  const uint64_t key = StreamKey(RandomFor::kGenerator, seed, NameHash("calm"));
  uint64_t draws = 0;
  for (absl::Duration* const never : FaultsOf(s)) *never = absl::ZeroDuration();
  for (double* const never : {&s.lost, &s.repeated, &s.slow, &s.danger}) *never = 0;
  s.job.poison.reset();
  const auto drawn = [&] { return absl::Seconds(0.2 + 3 * RandomUniformDouble(key, draws++)); };
  s.scales = drawn();
  s.suspends = drawn();
  s.rescales = s.job.consistency == v1::SYNC ? absl::ZeroDuration() : drawn();
  AddCopiesAndSpares(s);
  return s;
}

Scenario Scenario::Expiring(uint64_t seed) {
  Scenario s = Of(seed);
  MakeSync(s);
  Expire(s);
  return s;
}

Scenario Scenario::Admitting(uint64_t seed) {
  Scenario s = Of(seed);
  const uint64_t key = StreamKey(RandomFor::kGenerator, seed, NameHash("admitting"));
  s.job.partial = false;
  if (RandomUniformDouble(key, 0) < 0.7) {
    MakeSync(s);
    s.rescales = absl::ZeroDuration();
    s.job.after_sightings = 2 + static_cast<uint32_t>(RandomBelow(key, 1, 10));
    if (RandomUniformDouble(key, 2) < 0.3) Expire(s);
  }
  if (s.job.after_sightings == 0 || RandomUniformDouble(key, 3) < 0.3) {
    s.job.probability = 0.6f;
    s.job.poison.reset();  // what is set aside is counted by keys with a row
  }
  return s;
}

Scenario Scenario::Spilling(uint64_t seed) {
  Scenario s = Of(seed);
  const uint64_t key = StreamKey(RandomFor::kGenerator, seed, NameHash("spilling"));
  s.spills = true;
  if (s.job.consistency != v1::SYNC) return s;
  if (RandomUniformDouble(key, 0) < 0.5) Expire(s);
  if (RandomUniformDouble(key, 1) < 0.4) {
    s.job.after_sightings = 2 + static_cast<uint32_t>(RandomBelow(key, 2, 5));
    s.rescales = absl::ZeroDuration();
  }
  return s;
}

bool Scenario::NothingFails() const {
  const auto faults = FaultsOf(*this);
  const bool never = std::all_of(faults.begin(), faults.end(), [](const absl::Duration* every) {
    return *every == absl::ZeroDuration();
  });
  return never && lost + repeated + slow + danger == 0 && !job.poison.has_value();
}

Scenario Scenario::Undisturbed() const {
  Scenario s;
  s.seed = job.seed;
  s.workers = s.all_workers = workers;
  s.job = job;
  s.job.push_log = v1::RecoverySpec::OFF;
  s.job.replicas = 0;
  if (!s.job.expires) s.job.checkpoint_steps = 0;
  s.job.tests = false;
  s.job.poison_kills = false;
  return s;
}

std::string Scenario::ToString() const {
  std::string text = absl::StrCat(
      "seed ", seed, ": ", ps, " of ", all_ps, " ps, ", workers, " of ", all_workers, " workers, ",
      jobs, " jobs, ", partitions, " partitions, ", v1::Consistency_Name(job.consistency),
      ", push log ", v1::RecoverySpec::PushLog_Name(job.push_log), " with ", job.replicas,
      " replicas", job.partial ? ", partial recovery" : "",
      !job.poison.has_value() ? ""
      : job.poison_kills      ? ", a record that kills"
                              : ", a record without gradient",
      job.expires ? ", rows expire" : "", spills ? ", rows spill" : "",
      job.after_sightings > 1 ? absl::StrCat(", rows after ", job.after_sightings, " sightings")
                              : "",
      job.probability < 1 ? absl::StrCat(", rows for ", job.probability, " of keys") : "",
      ", a checkpoint every ", job.checkpoint_steps, " steps; faults for ",
      absl::FormatDuration(until));
  const std::pair<const char*, absl::Duration> kinds[] = {{"kills", kills},
                                                          {"stops", stops},
                                                          {"ps told to stop", leaves},
                                                          {"cuts", cuts},
                                                          {"scaling", scales},
                                                          {"suspends", suspends},
                                                          {"workers scaled", rescales},
                                                          {"power cuts", power},
                                                          {"full disk", full},
                                                          {"broken disk", broken},
                                                          {"jumps of the clock", jumps}};
  for (const auto& [name, every] : kinds) {
    if (every > absl::ZeroDuration()) {
      absl::StrAppendFormat(&text, ", %s every %.1fs", name, absl::ToDoubleSeconds(every));
    }
  }
  absl::StrAppendFormat(&text, ", lost %g, repeated %g, slow %g, danger %g", lost, repeated, slow,
                        danger);
  return text;
}

}  // namespace tessera::simulator
