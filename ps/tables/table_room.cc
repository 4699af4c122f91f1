// Table: room for new rows, where the memory of rows is bounded.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/tables/table.h"

namespace tessera::ps {
namespace {

// A row's part of its map, and of what slabs and maps have free.
constexpr uint64_t kBesideRow = 16;

}  // namespace

void Table::Limit(RowLimit* limit, std::string job) {
  limit_ = limit;
  job_ = std::move(job);
  limit_->Add(job_, this);
}

uint64_t Table::room_of_row() const {
  return tier_ != nullptr ? TableTier::kBytesBelow : store_.layout().block_bytes() + kBesideRow;
}

absl::StatusOr<RowLimit::Room> Table::TakeRoom(absl::Span<const uint64_t> keys, bool may_last) {
  if (limit_ == nullptr) return RowLimit::Room();
  // Near the limit only it is worth a look who has a row.
  if (auto room = limit_->Take(keys.size() * room_of_row())) return *std::move(room);
  if (tier_ != nullptr) TESSERA_RETURN_IF_ERROR(FromTier(tier_->WaitForRoom()));
  std::vector<uint64_t> absent;
  TESSERA_RETURN_IF_ERROR(FromTier(AppendAbsent(keys, absent)));
  return TakeRoomFor(absent.size(), may_last);
}

absl::StatusOr<RowLimit::Room> Table::TakeRoomFor(size_t rows, bool may_last) {
  if (limit_ == nullptr || rows == 0) return RowLimit::Room();
  if (auto room = limit_->Take(rows * room_of_row())) return *std::move(room);
  return limit_->Refuse(
      job_,
      absl::StrCat("job ", job_, ", table ", name(), ": no memory for ", rows, " rows of ",
                   room_of_row(), " bytes ", tier_ != nullptr ? "that stay " : "", "more than the ",
                   this->rows(), " that it has here"),
      may_last);
}

absl::Status Table::WaitForRoom(absl::Span<const Gradients> parts, bool replayed) {
  if (tier_ != nullptr) TESSERA_RETURN_IF_ERROR(FromTier(tier_->WaitForRoom()));
  if (limit_ == nullptr) return absl::OkStatus();
  size_t keys = 0;
  for (const Gradients& part : parts) keys += part.keys.size();
  // Rows that were pulled are there, mostly: a push takes room only where there is little.
  if (limit_->HasRoom(keys * room_of_row())) return absl::OkStatus();
  std::vector<uint64_t> absent;
  for (const Gradients& part : parts) {
    TESSERA_RETURN_IF_ERROR(FromTier(AppendAbsent(part.keys, absent)));
  }
  // Keys that get no row need no room. Of those whose sightings count any may get one, and what is
  // noted of the others takes memory, too.
  if (admission_ != nullptr && !admission_->counts()) {
    absent.erase(std::remove_if(absent.begin(), absent.end(),
                                [this](uint64_t key) { return !admission_->AtPull(key); }),
                 absent.end());
  }
  TESSERA_ASSIGN_OR_RETURN(RowLimit::Room room, TakeRoomFor(absent.size(), !replayed));
  // They will be made when this has returned: until the limit looks again they count as used.
  room.Use(absent.size() * room_of_row());
  return absl::OkStatus();
}

}  // namespace tessera::ps
