#include "ps/jobs/expired_eraser.h"

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// How long a piece takes, and the share of the time for pieces: pushes wait meanwhile.
constexpr absl::Duration kPiece = absl::Milliseconds(10);
constexpr int kIsOneIn = 10;

}  // namespace

absl::Status ExpiredEraser::Erase() {
  const absl::Span<const PartitionId> owned = partitions_->owned();
  const size_t all = tables_->size() * owned.size();
  const absl::Duration begin = clock_->Monotonic();
  if (all == 0 || begin < from_) return absl::OkStatus();
  absl::Duration spent;
  while ((next_ < all || wanted_) && spent < kPiece) {
    if (next_ >= all) {
      wanted_ = false;
      next_ = 0;
    }
    Table& table = *(*tables_)[next_ / owned.size()];
    TESSERA_RETURN_IF_ERROR(table.EraseExpiredBelow(owned[next_ % owned.size()]));
    ++next_;
    spent = clock_->Monotonic() - begin;
  }
  from_ = begin + spent * kIsOneIn;
  return absl::OkStatus();
}

}  // namespace tessera::ps
