#include "ps/steps/push_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channels.h"

namespace tessera::ps {

absl::Status PushParts::Check(const v1::PushRequest& request, uint64_t bulk_bytes) const {
  const auto wrong = [&request](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.header().rank(), ", push ",
                                                   request.sequence(), ", part ", request.part(),
                                                   " of ", request.parts(), ": ", what...));
  };
  if (request.parts() > kMaxParts) return wrong("expected at most ", kMaxParts, " parts");
  if (request.part() >= request.parts()) return wrong("parts are numbered from 0");
  if (request.bulk_bytes() > kMaxPushBytes) {
    return wrong("all parts together have ", request.bulk_bytes(), " bytes, at most ",
                 kMaxPushBytes, " are allowed; make train.batch_size smaller, or use more ps");
  }
  const auto found = pushes_.find(request.sequence());
  uint64_t arrived = 0;
  if (found == pushes_.end()) {
    if (pushes_.size() >= kMaxPushes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", request.header().rank(), " has ", pushes_.size(),
          " pushes of which parts are missing; send those before push ", request.sequence()));
    }
  } else {
    const Push& push = found->second;
    if (push.arrived.contains(request.part())) return absl::OkStatus();
    if (push.parts != request.parts() || push.bulk_bytes != request.bulk_bytes() ||
        push.learning_rate_scale != request.learning_rate_scale()) {
      return wrong("has ", request.bulk_bytes(), " bytes in all and learning_rate_scale ",
                   request.learning_rate_scale(), ", an earlier part of it is one of ", push.parts,
                   " with ", push.bulk_bytes, " bytes and ", push.learning_rate_scale);
    }
    arrived = push.arrived_bytes;
  }
  const uint64_t left = request.bulk_bytes() - arrived;
  // An error of the whole push is found here, before the last part is logged.
  if (Completes(request) ? bulk_bytes == left : bulk_bytes <= left) return absl::OkStatus();
  return wrong("brings ", bulk_bytes, " bytes of keys and gradients, after ", arrived, " of ",
               request.bulk_bytes(), " that were announced",
               Completes(request) ? ", and is the last one" : "");
}

bool PushParts::Completes(const v1::PushRequest& request) const {
  const auto found = pushes_.find(request.sequence());
  const size_t arrived = found == pushes_.end() ? 0 : found->second.arrived.size();
  return arrived + 1 == request.parts() && !ContainsPart(request);
}

bool PushParts::ContainsPart(const v1::PushRequest& request) const {
  const auto found = pushes_.find(request.sequence());
  return found != pushes_.end() && found->second.arrived.contains(request.part());
}

void PushParts::Add(const v1::PushRequest& request, uint64_t bulk_bytes,
                    std::vector<GradientBlock> blocks, wire::Buffer memory, ByteBudget::Hold held) {
  const auto [found, is_new] = pushes_.try_emplace(request.sequence());
  Push& push = found->second;
  if (push.arrived.contains(request.part())) return;
  if (is_new) push.held = std::move(held);
  push.parts = request.parts();
  push.bulk_bytes = request.bulk_bytes();
  push.learning_rate_scale = request.learning_rate_scale();
  push.arrived[request.part()] = {.blocks = std::move(blocks), .memory = std::move(memory)};
  push.arrived_bytes += bulk_bytes;  // last: there may be no memory for the part
}

void PushParts::TakeBack(const v1::PushRequest& request, uint64_t bulk_bytes) {
  Push& push = pushes_.at(request.sequence());
  if (push.arrived.erase(request.part()) > 0) push.arrived_bytes -= bulk_bytes;
}

std::vector<GradientBlock> PushParts::Blocks(uint64_t sequence) const {
  std::vector<GradientBlock> blocks;
  for (const auto& [number, part] : pushes_.at(sequence).arrived) {
    blocks.insert(blocks.end(), part.blocks.begin(), part.blocks.end());
  }
  return blocks;
}

PushParts::Erased PushParts::Erase(uint64_t sequence) {
  Erased erased;
  const auto found = pushes_.find(sequence);
  if (found == pushes_.end()) return erased;
  for (auto& [number, part] : found->second.arrived) {
    erased.memory.push_back(std::move(part.memory));
  }
  erased.held = std::move(found->second.held);
  pushes_.erase(found);
  return erased;
}

}  // namespace tessera::ps
