#include "ps/request_check.h"

#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "blocks are used as they lie in the message");

absl::StatusOr<const Table*> TableOf(const Tables& tables, uint32_t index) {
  if (index < tables.size()) return tables[index].get();
  return absl::InvalidArgumentError(absl::StrCat("table ", index, " does not exist; the job has ",
                                                 tables.size(), ", numbered from 0"));
}

// A string's bytes are aligned for these: on the heap to 16, within the string to 8.
absl::Span<const uint64_t> KeysOf(const std::string& bytes) {
  return {reinterpret_cast<const uint64_t*>(bytes.data()), bytes.size() / sizeof(uint64_t)};
}

absl::StatusOr<absl::Span<const uint64_t>> CheckKeyBytes(const Table& table,
                                                         const std::string& bytes) {
  if (bytes.size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": block of keys has ",
                                                   bytes.size(),
                                                   " bytes, expected a multiple of 8"));
  }
  const absl::Span<const uint64_t> keys = KeysOf(bytes);
  TESSERA_RETURN_IF_ERROR(table.CheckOwned(keys));
  return keys;
}

}  // namespace

absl::StatusOr<PullKeys> CheckPull(const Tables& tables, const v1::PullRequest& request,
                                   uint64_t max_bytes) {
  PullKeys keys;
  keys.reserve(request.tables_size());
  uint64_t bytes = 0;
  for (const v1::KeyBlock& block : request.tables()) {
    TESSERA_ASSIGN_OR_RETURN(const Table* table, TableOf(tables, block.table()));
    TESSERA_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> of_block,
                             CheckKeyBytes(*table, block.keys()));
    keys.push_back(of_block);
    bytes += of_block.size() * (sizeof(float) * table->dim() + 1) + 64;
  }
  if (bytes <= max_bytes) return keys;
  return absl::InvalidArgumentError(
      absl::StrCat("the answer to this pull has ", bytes, " bytes, at most ", max_bytes,
                   " are allowed; make train.batch_size or the dims smaller, or use more ps"));
}

Table::Gradients GradientsOf(const v1::GradientBlock& block) {
  return {.keys = KeysOf(block.keys()),
          .values = reinterpret_cast<const float*>(block.gradients().data())};
}

absl::StatusOr<Table::Gradients> CheckGradients(const Tables& tables,
                                                const v1::GradientBlock& block) {
  TESSERA_ASSIGN_OR_RETURN(const Table* table, TableOf(tables, block.table()));
  TESSERA_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> keys,
                           CheckKeyBytes(*table, block.keys()));
  const uint64_t expected = uint64_t{keys.size()} * table->dim() * sizeof(float);
  if (block.gradients().size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table->name(), ": block of values has ", block.gradients().size(),
        " bytes, expected ", expected, " (", keys.size(), " keys of dim ", table->dim(), ")"));
  }
  const Table::Gradients gradients = GradientsOf(block);
  TESSERA_RETURN_IF_ERROR(table->CheckFinite(gradients));
  return gradients;
}

absl::StatusOr<std::vector<std::vector<Table::Gradients>>> CheckPush(
    const Tables& tables, const v1::PushRequest& request) {
  if (!std::isfinite(request.learning_rate_scale()) || request.learning_rate_scale() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate_scale is ",
                                                   request.learning_rate_scale(),
                                                   ", expected a finite number, at least 0"));
  }
  std::vector<std::vector<Table::Gradients>> parts(tables.size());
  for (const v1::GradientBlock& block : request.tables()) {
    TESSERA_ASSIGN_OR_RETURN(const Table::Gradients gradients, CheckGradients(tables, block));
    TESSERA_RETURN_IF_ERROR(tables[block.table()]->CheckAssigned(gradients.keys));
    parts[block.table()].push_back(gradients);
  }
  return parts;
}

}  // namespace tessera::ps
