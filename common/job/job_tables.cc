#include "common/job/job_tables.h"

#include "common/job/defaults.h"
#include "common/job/dense_layout.h"

namespace tessera {

std::vector<v1::PsTable> TablesOf(const v1::JobSpec& spec) {
  std::vector<v1::PsTable> tables;
  for (const v1::TableSpec& table : spec.tables()) {
    v1::PsTable& out = tables.emplace_back();
    *out.mutable_spec() = table;
    out.set_consistency(ModeOf(spec.consistency().sparse()));
  }
  for (const char* name : {kDenseTable, kDenseStatisticsTable}) {
    v1::PsTable& out = tables.emplace_back();
    out.mutable_spec()->set_name(name);
    out.mutable_spec()->set_dim(kDenseBlockFloats);
    out.mutable_spec()->mutable_initializer()->mutable_constant();
    out.set_consistency(ModeOf(spec.consistency().dense()));
    out.set_dense(true);
  }
  *tables[tables.size() - 2].mutable_spec()->mutable_optimizer() = spec.model().optimizer();
  v1::PsTable& statistics = tables.back();
  statistics.mutable_spec()->mutable_optimizer()->set_learning_rate(1);
  statistics.mutable_spec()->mutable_optimizer()->mutable_sgd();
  statistics.set_fixed_rate(true);
  return tables;
}

}  // namespace tessera
