#include "ps/calls/shared_calls.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/shared_memory/region_format.h"
#include "common/status_macros.h"
#include "ps/calls/bulk_memory.h"

namespace tessera::ps {
namespace {

using shared_memory::SlotLayout;

// A slot that was taken, and where the fields lie in it.
struct TakenSlot {
  SlotUse use;
  std::vector<absl::Span<char>> keys;    // [blocks]
  std::vector<absl::Span<char>> values;  // [blocks]
};

absl::StatusOr<TakenSlot> TakeSlot(SharedRegions& regions, const v1::SharedBulk& shared,
                                   size_t blocks) {
  if (static_cast<size_t>(shared.key_bytes_size()) != blocks ||
      static_cast<size_t>(shared.value_bytes_size()) != blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("sizes of ", shared.key_bytes_size(), " and ", shared.value_bytes_size(),
                     " fields in shared memory, of ", blocks, " blocks"));
  }
  TESSERA_ASSIGN_OR_RETURN(SlotUse use, regions.Take(shared));
  TakenSlot taken = {.use = std::move(use), .keys = {}, .values = {}};
  const absl::Span<char> memory = taken.use.memory();
  SlotLayout layout(memory.size());
  for (const auto& [sizes, fields] : {std::pair(&shared.key_bytes(), &taken.keys),
                                      std::pair(&shared.value_bytes(), &taken.values)}) {
    fields->reserve(blocks);
    for (const uint64_t bytes : *sizes) {
      const std::optional<uint64_t> offset = layout.Add(bytes);
      if (!offset.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat("a field of ", bytes, " bytes begins at ",
                                                       layout.end(), " of a slot of ",
                                                       memory.size(), " bytes"));
      }
      fields->push_back(memory.subspan(*offset, bytes));
    }
  }
  return taken;
}

absl::Status CheckNoBulk(absl::Span<const Bulk> bulks) {
  if (std::all_of(bulks.begin(), bulks.end(), [](Bulk bulk) { return bulk.empty(); })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a message with its bulk in shared memory has bulk of its own");
}

uint64_t BytesOf(absl::Span<const absl::Span<char>> fields) {
  return std::accumulate(fields.begin(), fields.end(), uint64_t{0},
                         [](uint64_t sum, absl::Span<char> field) { return sum + field.size(); });
}

uint64_t PaddedBytesOf(absl::Span<const absl::Span<char>> fields) {
  uint64_t bytes = 0;
  for (const absl::Span<char> field : fields) bytes += BulkMemory::Padded(field.size());
  return bytes;
}

// Copies fields; `spans` says where the copies lie.
void Copy(absl::Span<const absl::Span<char>> fields, BulkMemory& memory, std::vector<Bulk>* spans) {
  spans->clear();
  for (const absl::Span<char> field : fields) {
    const absl::Span<char> copy = memory.Add(field.size());
    std::copy(field.begin(), field.end(), copy.begin());
    spans->push_back(copy);
  }
}

}  // namespace

absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, PullCall& call) {
  if (!call.request.has_shared()) return 0;
  TESSERA_RETURN_IF_ERROR(CheckNoBulk(call.keys));
  TESSERA_ASSIGN_OR_RETURN(TakenSlot slot,
                           TakeSlot(regions, call.request.shared(), call.keys.size()));
  BulkMemory keys(PaddedBytesOf(slot.keys));
  Copy(slot.keys, keys, &call.keys);
  call.memory = std::move(keys).Finish();
  const uint64_t bytes = BytesOf(slot.keys) + BytesOf(slot.values);
  call.bytes += BytesOf(slot.keys);
  call.room = std::move(slot.values);
  call.slot.emplace(std::move(slot.use));
  call.request.clear_shared();
  return bytes;
}

absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, bool copy, PushCall& call) {
  if (!call.request.has_shared()) return 0;
  TESSERA_RETURN_IF_ERROR(CheckNoBulk(call.keys));
  TESSERA_RETURN_IF_ERROR(CheckNoBulk(call.gradients));
  TESSERA_ASSIGN_OR_RETURN(TakenSlot slot,
                           TakeSlot(regions, call.request.shared(), call.keys.size()));
  const uint64_t bytes = BytesOf(slot.keys) + BytesOf(slot.values);
  call.bytes += bytes;
  BulkMemory copied(PaddedBytesOf(slot.keys) + (copy ? PaddedBytesOf(slot.values) : 0));
  Copy(slot.keys, copied, &call.keys);
  if (copy) {
    Copy(slot.values, copied, &call.gradients);
    call.memory = std::move(copied).Finish();
  } else {
    call.gradients.assign(slot.values.begin(), slot.values.end());
    struct Owner {
      SlotUse slot;
      wire::Buffer keys;
    };
    const auto owner = std::make_shared<Owner>(
        Owner{.slot = std::move(slot.use), .keys = std::move(copied).Finish()});
    call.memory = wire::Buffer(owner->slot.memory().data(), owner->slot.memory().size(), owner);
  }
  call.request.clear_shared();
  return bytes;
}

}  // namespace tessera::ps
