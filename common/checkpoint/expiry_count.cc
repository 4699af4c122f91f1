#include "common/checkpoint/expiry_count.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/expiry.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

// Each of a table's rules alone, with its grace, and all together.
struct Rules {
  static absl::StatusOr<Rules> Of(const v1::TableSpec& table) {
    v1::ExpirySpec age, frequency, norm;
    age.set_after_steps(table.expiry().after_steps());
    frequency.set_min_frequency(table.expiry().min_frequency());
    norm.set_min_norm(table.expiry().min_norm());
    for (v1::ExpirySpec* spec : {&frequency, &norm}) {
      spec->set_grace_steps(table.expiry().grace_steps());
    }
    const auto rule = [&](const v1::ExpirySpec& spec) { return Expiry::New(spec, table.name()); };
    TESSERA_ASSIGN_OR_RETURN(const Expiry by_age, rule(age));
    TESSERA_ASSIGN_OR_RETURN(const Expiry by_frequency, rule(frequency));
    TESSERA_ASSIGN_OR_RETURN(const Expiry by_norm, rule(norm));
    TESSERA_ASSIGN_OR_RETURN(const Expiry all, rule(table.expiry()));
    return Rules{by_age, by_frequency, by_norm, all};
  }

  Expiry by_age, by_frequency, by_norm, all;
};

void Count(const PartitionRows& rows, uint32_t dim, const Rules& rules, uint64_t applied_steps,
           ExpiryCount& count) {
  for (uint64_t i = 0; i < rows.rows(); ++i) {
    const auto takes = [&](const Expiry& rule) {
      return rule.Takes(rows.last_step(i), rows.frequency(i), applied_steps,
                        [&] { return EmbeddingNorm(rows.values(i).first(dim)); });
    };
    ++count.rows;
    count.by_age += takes(rules.by_age);
    count.by_frequency += takes(rules.by_frequency);
    count.by_norm += takes(rules.by_norm);
    count.expired += takes(rules.all);
  }
}

}  // namespace

absl::StatusOr<std::vector<ExpiryCount>> CountExpiring(
    FileSystem& fs, const std::string& folder, absl::Span<const v1::TableSpec* const> tables,
    KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest read, ReadManifest(fs, folder));
  TESSERA_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(fs, folder, std::move(read)));
  const v1::CheckpointManifest& manifest = reader->manifest();
  // What ps call applied steps at a cut.
  const uint64_t applied_steps =
      manifest.position().has_next_push() ? manifest.position().next_push() : manifest.step();
  std::vector<std::optional<Rules>> rules(static_cast<size_t>(manifest.tables_size()));
  for (const v1::TableSpec* table : tables) {
    TESSERA_ASSIGN_OR_RETURN(const Rules of_table, Rules::Of(*table));
    if (!of_table.all.active()) continue;
    TESSERA_ASSIGN_OR_RETURN(const TableIndex index, reader->FindTable(table->name()));
    rules[index.value()] = of_table;
  }
  std::vector<ExpiryCount> counts;
  for (uint32_t t = 0; t < rules.size(); ++t) {
    if (!rules[t].has_value()) continue;
    const v1::TableSpec& table = manifest.tables(static_cast<int>(t)).spec();
    ExpiryCount& count = counts.emplace_back();
    count.table = table.name();
    for (uint32_t p = 0; p < reader->partition_count(); ++p) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows,
                               reader->Read(TableIndex(t), PartitionId(p)));
      Count(rows, table.dim(), *rules[t], applied_steps, count);
    }
  }
  return counts;
}

}  // namespace tessera
