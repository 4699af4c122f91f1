#include "ps/admission.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/partition.h"
#include "common/random.h"

namespace tessera::ps {
namespace {

uint32_t FingerprintOf(uint64_t key) { return static_cast<uint32_t>(Mix64(key)); }

uint32_t MaxSlots(uint32_t partition_count) {
  const uint64_t slots = Admission::kMaxBytes / SightingFilter::kSlotBytes / partition_count;
  return static_cast<uint32_t>(
      std::bit_floor(std::max<uint64_t>(slots, SightingFilter::kFirstSlots)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Admission>> Admission::New(const v1::AdmissionSpec& spec,
                                                          uint64_t seed, absl::string_view table,
                                                          const PartitionSet* partitions) {
  if (spec.after_sightings() > SightingFilter::kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, ": admission.after_sightings is ", spec.after_sightings(),
                     ", expected at most ", SightingFilter::kMost));
  }
  if (spec.has_probability() && !(spec.probability() > 0 && spec.probability() <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, ": admission.probability is ",
                                                   spec.probability(),
                                                   ", expected more than 0 and at most 1"));
  }
  const bool all = !spec.has_probability() || spec.probability() == 1;
  if (all && spec.after_sightings() <= 1) return nullptr;
  return std::unique_ptr<Admission>(new Admission(spec, seed, table, partitions));
}

Admission::Admission(const v1::AdmissionSpec& spec, uint64_t seed, absl::string_view table,
                     const PartitionSet* partitions)
    : sightings_(spec.after_sightings()),
      probability_(spec.has_probability() ? spec.probability() : 1),
      seed_(seed),
      table_hash_(NameHash(table)),
      partitions_(*partitions) {
  if (sightings_ <= 1) return;
  filters_.assign(partitions_.owned().size(),
                  SightingFilter(MaxSlots(partitions_.partition_count())));
}

bool Admission::IsChosen(uint64_t key) const {
  const uint64_t stream = StreamKey(RandomFor::kAdmission, seed_, table_hash_, key);
  return probability_ == 1 || RandomUniformDouble(stream, 0) < probability_;
}

SightingFilter& Admission::FilterOf(uint64_t key) {
  return filters_[partitions_.IndexOf(PartitionOf(key, partitions_.partition_count()))];
}

std::vector<uint64_t> Admission::Sight(std::vector<uint64_t> keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  keys.erase(
      std::remove_if(keys.begin(), keys.end(), [this](uint64_t key) { return !IsChosen(key); }),
      keys.end());
  if (sightings_ <= 1) return keys;
  // All are counted before one is judged: then it does not matter which comes first.
  for (const uint64_t key : keys) FilterOf(key).Add(FingerprintOf(key));
  std::vector<uint64_t> admitted;
  for (const uint64_t key : keys) {
    if (FilterOf(key).Count(FingerprintOf(key)) >= sightings_) admitted.push_back(key);
  }
  for (const uint64_t key : admitted) FilterOf(key).Forget(FingerprintOf(key));
  return admitted;
}

uint64_t Admission::bytes() const {
  absl::MutexLock lock(&mu);
  uint64_t bytes = filters_.size() * sizeof(SightingFilter);
  for (const SightingFilter& filter : filters_) bytes += filter.bytes();
  return bytes;
}

}  // namespace tessera::ps
