#include "ps/jobs/request_check.h"

#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/status_macros.h"
#include "ps/steps/push_order.h"

namespace tessera::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "blocks are used as they lie in the message");

constexpr uint32_t kMaxRanks = 1 << 16;
// Tables times partitions on one ps: each is a map, of 16 bytes when empty.
constexpr uint64_t kMaxMaps = 1 << 24;

absl::StatusOr<const Table*> TableOf(const Tables& tables, uint32_t index) {
  if (index < tables.size()) return tables[index].get();
  return absl::InvalidArgumentError(absl::StrCat("table ", index, " does not exist; the job has ",
                                                 tables.size(), ", numbered from 0"));
}

std::string OfRow(const Table& table, RowPart part) {
  const RowLayout& layout = table.optimizer().layout();
  if (part == RowPart::kWhole) {
    return absl::StrCat("dim ", layout.dim(), " with ", layout.slot_floats(), " slots");
  }
  return absl::StrCat("dim ", layout.dim(), table.wire_bfloat16() ? ", bfloat16" : "");
}

absl::StatusOr<absl::Span<const uint64_t>> CheckKeyBytes(const Table& table, Bulk bytes) {
  if (bytes.size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": block of keys has ",
                                                   bytes.size(),
                                                   " bytes, expected a multiple of 8"));
  }
  const absl::Span<const uint64_t> keys(reinterpret_cast<const uint64_t*>(bytes.data()),
                                        bytes.size() / sizeof(uint64_t));
  TESSERA_RETURN_IF_ERROR(table.CheckOwned(keys));
  return keys;
}

}  // namespace

absl::Status CheckJobId(const std::string& id) {
  constexpr size_t kMaxBytes = 256;
  if (id.empty() || id.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_id has ", id.size(), " bytes, expected 1 to ", kMaxBytes));
  }
  if (id[0] != '.' && !absl::StrContains(id, '/') && !absl::StrContains(id, '\0')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job_id is '", absl::CEscape(id), "', expected no '/' and no '.' at its begin"));
}

absl::Status CheckOpen(const v1::OpenJobRequest& request) {
  const auto refuse = [&request](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request.job_id(), ": ", why...));
  };
  if (request.workers() == 0 || request.workers() > kMaxRanks) {
    return refuse("workers is ", request.workers(), ", expected 1 to ", kMaxRanks);
  }
  if (request.tables_size() > kMostTables) {
    return refuse("has ", request.tables_size(), " tables, expected at most ", kMostTables);
  }
  if (uint64_t maps = uint64_t(request.tables_size()) * request.partitions_size();
      maps > kMaxMaps) {
    return refuse("has ", request.tables_size(), " tables in ", request.partitions_size(),
                  " partitions on this ps, ", maps, " in all, expected at most ", kMaxMaps,
                  "; use fewer partitions");
  }
  if (request.max_lead() > kMaxLead) {
    return refuse("max_lead is ", request.max_lead(), ", expected at most ", kMaxLead);
  }
  if (PushOrder::HasSync(request) && request.max_lead() > 0) {
    return refuse("max_lead is ", request.max_lead(),
                  " and a table is sync, which holds all workers together; expected 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<PullKeys> CheckPull(const Tables& tables, const PullCall& call, uint64_t max_bytes) {
  PullKeys keys;
  keys.reserve(call.keys.size());
  uint64_t bytes = 0;
  for (size_t b = 0; b < call.keys.size(); ++b) {
    const v1::KeyBlock& block = call.request.tables(static_cast<int>(b));
    TESSERA_ASSIGN_OR_RETURN(const Table* table, TableOf(tables, block.table()));
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> of_block,
                             CheckKeyBytes(*table, call.keys[b]));
    if (block.whole()) TESSERA_RETURN_IF_ERROR(table->CheckWhole());
    if (block.whole() && call.request.read_only()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table->name(),
                       ": a read_only pull cannot have whole rows, which are for training them"));
    }
    const RowPart part = PartOf(block);
    const uint64_t values = table->wire_bytes(part) * of_block.size();
    if (call.slot.has_value() && call.room[b].size() != values) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", table->name(), ": room for rows has ", call.room[b].size(), " bytes, expected ",
          values, " (", of_block.size(), " keys of ", OfRow(*table, part), ")"));
    }
    keys.push_back(of_block);
    bytes += values + of_block.size() + 64;
  }
  if (bytes <= max_bytes) return keys;
  return absl::InvalidArgumentError(absl::StrCat("the answer to this pull has ", bytes,
                                                 " bytes, at most ", max_bytes,
                                                 " are allowed; split it by keys"));
}

absl::StatusOr<GradientBlock> CheckGradients(const Tables& tables, const v1::GradientBlock& block,
                                             Bulk key_bytes, Bulk values, bool assigned) {
  TESSERA_ASSIGN_OR_RETURN(const Table* table, TableOf(tables, block.table()));
  TESSERA_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> keys, CheckKeyBytes(*table, key_bytes));
  if (block.changes()) TESSERA_RETURN_IF_ERROR(table->CheckWhole());
  const RowPart part = block.changes() ? RowPart::kWhole : RowPart::kEmbedding;
  const uint64_t expected = uint64_t{keys.size()} * table->wire_bytes(part);
  if (values.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table->name(), ": block of values has ", values.size(), " bytes, expected ",
        expected, " (", keys.size(), " keys of ", OfRow(*table, part), ")"));
  }
  const Table::Gradients gradients = {
      .keys = keys, .values = values.data(), .changes = block.changes()};
  const bool any = assigned || block.changes();
  TESSERA_RETURN_IF_ERROR(table->CheckFinite(
      gradients, any ? std::numeric_limits<float>::max() : table->largest_gradient()));
  return GradientBlock{.table = block.table(), .gradients = gradients};
}

absl::StatusOr<std::vector<GradientBlock>> CheckPush(const Tables& tables, const PushCall& call) {
  for (const auto& table : tables) {
    TESSERA_RETURN_IF_ERROR(table->CheckRate(call.request.learning_rate_scale()));
  }
  if (call.request.sequence() >= kMostPushes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", call.request.header().rank(), ": the number of its push is ",
                     call.request.sequence(), ", expected less than ", kMostPushes,
                     "; a job with start.warm begins anew at 0, with the rows of a checkpoint"));
  }
  std::vector<GradientBlock> blocks;
  blocks.reserve(call.keys.size());
  for (size_t b = 0; b < call.keys.size(); ++b) {
    TESSERA_ASSIGN_OR_RETURN(const GradientBlock block,
                             CheckGradients(tables, call.request.tables(static_cast<int>(b)),
                                            call.keys[b], call.gradients[b], /*assigned=*/false));
    TESSERA_RETURN_IF_ERROR(tables[block.table]->CheckAssigned(block.gradients.keys));
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace tessera::ps
