#include "ps/tables/admission.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/partition.h"
#include "common/random.h"

namespace tessera::ps {
namespace {

uint32_t FingerprintOf(uint64_t key) { return static_cast<uint32_t>(Mix64(key)); }

// The filter, to be changed: copied first if a cut has it, too.
SightingFilter& Unshared(std::shared_ptr<SightingFilter>& filter) {
  if (filter.use_count() > 1) filter = std::make_shared<SightingFilter>(*filter);
  return *filter;
}

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
  for (size_t i = 0; i < partitions_.owned().size(); ++i) filters_.push_back(NewFilter());
}

std::shared_ptr<SightingFilter> Admission::NewFilter() const {
  return std::make_shared<SightingFilter>(MaxSlots(partitions_.partition_count()));
}

bool Admission::IsChosen(uint64_t key) const {
  const uint64_t stream = StreamKey(RandomFor::kAdmission, seed_, table_hash_, key);
  return probability_ == 1 || RandomUniformDouble(stream, 0) < probability_;
}

SightingFilter& Admission::FilterOf(uint64_t key) {
  return Unshared(filters_[partitions_.IndexOf(PartitionOf(key, partitions_.partition_count()))]);
}

std::vector<uint64_t> Admission::Sight(std::vector<uint64_t> keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  keys.erase(
      std::remove_if(keys.begin(), keys.end(), [this](uint64_t key) { return !IsChosen(key); }),
      keys.end());
  if (sightings_ <= 1) return keys;
  // All keys are counted before any is judged, so their order does not matter.
  for (const uint64_t key : keys) FilterOf(key).Add(FingerprintOf(key));
  std::vector<uint64_t> admitted;
  for (const uint64_t key : keys) {
    if (FilterOf(key).Count(FingerprintOf(key)) >= sightings_) admitted.push_back(key);
  }
  for (const uint64_t key : admitted) FilterOf(key).Forget(FingerprintOf(key));
  return admitted;
}

uint64_t Admission::CountingBytes() const {
  uint64_t bytes = filters_.size() * sizeof(SightingFilter);
  for (const auto& filter : filters_) bytes += filter->bytes();
  return bytes;
}

uint64_t Admission::counting_bytes() const {
  absl::MutexLock lock(&mu);
  return CountingBytes();
}

uint64_t Admission::bytes() const {
  absl::MutexLock lock(&mu);
  uint64_t bytes = CountingBytes();
  for (const auto& filter : cut_) {
    if (filter != nullptr && filter.use_count() == 1) bytes += filter->bytes();
  }
  return bytes;
}

std::vector<Sighting> Admission::Sightings(PartitionId partition) const {
  std::shared_ptr<const SightingFilter> filter;
  {
    absl::MutexLock lock(&mu);
    filter = filters_[partitions_.IndexOf(partition)];
  }
  std::vector<Sighting> all = filter->All();
  absl::MutexLock lock(&mu);
  filter.reset();
  return all;
}

void Admission::SetSightings(PartitionId partition, absl::Span<const Sighting> sightings) {
  const uint32_t index = partitions_.IndexOf(partition);
  if (index == PartitionSet::kNotOwned) return;
  {
    absl::MutexLock lock(&mu);
    filters_[index] = NewFilter();
  }
  AddSightings(partition, sightings);
}

void Admission::AddSightings(PartitionId partition, absl::Span<const Sighting> sightings) {
  const uint32_t index = partitions_.IndexOf(partition);
  if (index == PartitionSet::kNotOwned) return;
  absl::MutexLock lock(&mu);
  SightingFilter& filter = Unshared(filters_[index]);
  for (const Sighting& sighting : sightings) filter.Put(sighting);
}

void Admission::TakeOver(Admission& other) {
  for (const PartitionId partition : partitions_.owned()) {
    const uint32_t from = other.partitions_.IndexOf(partition);
    if (from == PartitionSet::kNotOwned) continue;
    std::shared_ptr<SightingFilter> filter = other.NewFilter();
    {
      absl::MutexLock lock(&other.mu);
      if (other.filters_[from]->size() == 0) continue;
      std::swap(filter, other.filters_[from]);
    }
    absl::MutexLock lock(&mu);
    filters_[partitions_.IndexOf(partition)] = std::move(filter);
  }
}

void Admission::BeginCut() {
  absl::MutexLock lock(&mu);
  cut_.assign(filters_.begin(), filters_.end());
}

std::vector<Sighting> Admission::TakeCut(PartitionId partition) {
  std::shared_ptr<const SightingFilter> filter;
  {
    absl::MutexLock lock(&mu);
    filter = std::move(cut_[partitions_.IndexOf(partition)]);
  }
  std::vector<Sighting> all = filter->All();
  absl::MutexLock lock(&mu);
  filter.reset();
  return all;
}

void Admission::DropCut() {
  absl::MutexLock lock(&mu);
  cut_.clear();
}

}  // namespace tessera::ps
