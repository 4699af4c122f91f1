// Table: keys that get a row only once they are admitted.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/status_macros.h"
#include "ps/tables/table.h"

namespace tessera::ps {

absl::StatusOr<RowCounts> Table::PullAdmitted(absl::Span<const uint64_t> keys, float* values,
                                              uint8_t* statuses) {
  RowCounts counts;
  if (tier_ != nullptr) {
    TESSERA_RETURN_IF_ERROR(FromTier(tier_->WaitForRoom()));
    TESSERA_ASSIGN_OR_RETURN(counts, FromTier(tier_->FindOrBring(keys, values, statuses)));
  } else {
    counts = store_.Find(keys, values, statuses);
  }
  if (counts.absent == 0) return counts;
  std::vector<uint32_t> positions;  // of the keys that get a row
  std::vector<uint64_t> admitted;
  for (uint32_t i = 0; i < keys.size(); ++i) {
    if (statuses[i] != v1::ROW_ABSENT) continue;
    statuses[i] = v1::ROW_NOT_ADMITTED;
    if (!admission_->AtPull(keys[i])) continue;
    positions.push_back(i);
    admitted.push_back(keys[i]);
  }
  counts.not_admitted = std::exchange(counts.absent, 0) - admitted.size();
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoomFor(admitted.size(), /*may_last=*/true));
  // Another call, or the same key earlier in this one, may make the row first.
  std::vector<float> of_rows(admitted.size() * dim());
  std::vector<uint8_t> found(admitted.size());
  TESSERA_ASSIGN_OR_RETURN(const RowCounts rows, FindOrCreate(admitted, of_rows.data(),
                                                              found.data(), RowPart::kEmbedding));
  room.Use(rows.created * room_of_row());
  for (size_t i = 0; i < positions.size(); ++i) {
    std::copy_n(of_rows.data() + i * dim(), dim(), values + size_t{positions[i]} * dim());
    statuses[positions[i]] = found[i];
  }
  counts.hits += rows.hits;
  counts.created = rows.created;
  not_admitted_.fetch_add(counts.not_admitted, std::memory_order_relaxed);
  return counts;
}

absl::StatusOr<std::vector<Table::Gradients>> Table::Admit(absl::Span<const Gradients> parts) {
  std::vector<uint64_t> absent;
  for (const Gradients& part : parts) TESSERA_RETURN_IF_ERROR(AppendAbsent(part.keys, absent));
  std::vector<Gradients> admitted(parts.begin(), parts.end());
  if (absent.empty()) return admitted;
  absl::flat_hash_set<uint64_t> refused;
  {
    // Another update may have made rows meanwhile.
    absl::MutexLock lock(&admission_->mu);
    std::vector<uint64_t> still_absent;
    TESSERA_RETURN_IF_ERROR(AppendAbsent(absent, still_absent));
    refused.insert(still_absent.begin(), still_absent.end());
    const std::vector<uint64_t> made = admission_->Sight(std::move(still_absent));
    TESSERA_RETURN_IF_ERROR(Make(made));
    for (const uint64_t key : made) refused.erase(key);
  }
  if (refused.empty()) return admitted;
  admitted.clear();
  uint64_t dropped = 0;
  for (const Gradients& part : parts) {
    // Keeps the runs between refused keys.
    size_t begin = 0;
    for (size_t i = 0; i <= part.keys.size(); ++i) {
      if (i < part.keys.size() && !refused.contains(part.keys[i])) continue;
      if (i > begin) {
        admitted.push_back({.keys = part.keys.subspan(begin, i - begin),
                            .values = static_cast<const char*>(part.values) +
                                      begin * wire_bytes(RowPart::kEmbedding)});
      }
      begin = i + 1;
      dropped += i < part.keys.size();
    }
  }
  dropped_gradients_.fetch_add(dropped, std::memory_order_relaxed);
  return admitted;
}

absl::Status Table::Make(absl::Span<const uint64_t> keys) {
  const auto change_nothing = [](absl::Span<Row* const>, absl::Span<const uint32_t>) {};
  if (tier_ != nullptr) return tier_->Update(keys, change_nothing);
  store_.Update(keys, change_nothing);
  return absl::OkStatus();
}

}  // namespace tessera::ps
