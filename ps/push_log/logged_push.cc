#include "ps/push_log/logged_push.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ps/calls/bulk_memory.h"
#include "tessera/v1/push_log.pb.h"

namespace tessera::ps::push_log {

std::string EncodePush(const PushCall& call) {
  v1::LoggedPush logged;
  *logged.mutable_request() = call.request;
  for (const Bulk& keys : call.keys) logged.add_key_bytes(keys.size());
  for (const Bulk& gradients : call.gradients) logged.add_gradient_bytes(gradients.size());
  return logged.SerializeAsString();
}

absl::StatusOr<PushCall> DecodePush(const std::string& text, wire::Buffer bulk) {
  v1::LoggedPush logged;
  if (!logged.ParseFromString(text)) return absl::DataLossError("is no push");
  PushCall call;
  const char* at = bulk.data();
  uint64_t left = bulk.size();
  for (auto [sizes, spans] : {std::pair(&logged.key_bytes(), &call.keys),
                              std::pair(&logged.gradient_bytes(), &call.gradients)}) {
    for (const uint64_t bytes : *sizes) {
      const uint64_t padded = BulkMemory::Padded(bytes);
      if (padded < bytes || padded > left) return absl::DataLossError("has too small a bulk");
      spans->push_back(Bulk(at, bytes));
      at += padded;
      left -= padded;
    }
  }
  call.request = std::move(*logged.mutable_request());
  const size_t blocks = static_cast<size_t>(call.request.tables_size());
  if (call.keys.size() != blocks || call.gradients.size() != blocks) {
    return absl::DataLossError("has another number of blocks than sizes");
  }
  call.memory = std::move(bulk);
  return call;
}

}  // namespace tessera::ps::push_log
