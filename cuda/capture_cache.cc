#include "cuda/capture_cache.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace tessera::cuda {
namespace {

// A graph takes some of the card's memory; graphs of sizes that never come again must not fill it.
constexpr size_t kMostForms = 16;

}  // namespace

absl::Status CaptureCache::Run(uint64_t form, absl::FunctionRef<void()> give) {
  const auto found = forms_.find(form);
  if (found == forms_.end() || refused_ || !stream_.status().ok()) {
    give();
    if (forms_.size() == kMostForms) Forget();
    forms_.try_emplace(form);
    return absl::OkStatus();
  }
  Form& known = found->second;
  // If the scratch of the captured work is gone, capture anew.
  if (known.work == nullptr || known.scratch != stream_.scratch_taken()) {
    absl::StatusOr<CapturedWork> captured = stream_.Capture(give);
    if (!captured.ok()) {
      refused_ = true;
      Forget();
      give();
      return captured.status();
    }
    known = {*std::move(captured), stream_.scratch_taken()};
  } else {
    ++replays_;
  }
  stream_.Replay(known.work);
  return absl::OkStatus();
}

}  // namespace tessera::cuda
