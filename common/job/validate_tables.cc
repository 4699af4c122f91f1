#include <cmath>
#include <optional>
#include <set>

#include "common/expiry.h"
#include "common/job/job_tables.h"
#include "common/job/optimizer.h"
#include "common/job/validate_parts.h"
#include "common/status_macros.h"

namespace tessera::validate {
namespace {

constexpr uint32_t kMaxDim = 4096;

absl::Status Size(float number, const std::string& path) {
  if (std::fabs(number) <= kMostSize) return absl::OkStatus();
  return Wrong(path, "found ", number, "; expected -", kMostSize, " to ", kMostSize);
}

absl::Status Initializer(const v1::InitializerSpec& initializer, const std::string& path) {
  switch (initializer.kind_case()) {
    case v1::InitializerSpec::kConstant:
      return Size(initializer.constant().value(), path + ".constant.value");
    case v1::InitializerSpec::kUniform: {
      const v1::UniformInitializer& uniform = initializer.uniform();
      TESSERA_RETURN_IF_ERROR(Size(uniform.min(), path + ".uniform.min"));
      TESSERA_RETURN_IF_ERROR(Size(uniform.max(), path + ".uniform.max"));
      if (uniform.min() < uniform.max()) return absl::OkStatus();
      return Wrong(path + ".uniform", "found min ", uniform.min(), " and max ", uniform.max(),
                   "; expected min below max");
    }
    case v1::InitializerSpec::kNormal:
      TESSERA_RETURN_IF_ERROR(Size(initializer.normal().mean(), path + ".normal.mean"));
      TESSERA_RETURN_IF_ERROR(Size(initializer.normal().stddev(), path + ".normal.stddev"));
      if (initializer.normal().stddev() > 0) return absl::OkStatus();
      return Wrong(path + ".normal.stddev", "found ", initializer.normal().stddev(),
                   "; expected more than 0 (for one value use constant)");
    case v1::InitializerSpec::KIND_NOT_SET:
      break;
  }
  return Wrong(path,
               "missing; expected one of constant, uniform, normal, such as "
               "'normal: {stddev: 0.01}'");
}

absl::Status Admission(const v1::AdmissionSpec& admission, const std::string& path) {
  // A ps counts no further.
  constexpr uint32_t kMostSightings = 255;
  if (admission.after_sightings() > kMostSightings) {
    return Wrong(path + ".after_sightings", "found ", admission.after_sightings(),
                 "; expected at most ", kMostSightings);
  }
  const float probability = admission.probability();
  if (!admission.has_probability() || (probability > 0 && probability <= 1)) {
    return absl::OkStatus();
  }
  return Wrong(path + ".probability", "found ", probability,
               "; expected more than 0 and at most 1 (leave it out for all keys)");
}

}  // namespace

absl::Status Optimizer(bool present, const v1::OptimizerSpec& optimizer, const std::string& path) {
  if (!present) {
    return Wrong(path, "missing; expected a learning rate and one of ", OptimizerKinds(),
                 ", such as {learning_rate: 0.001, adam: {}}");
  }
  if (const std::optional<WrongNumber> wrong = FirstWrongNumber(optimizer)) {
    return Wrong(absl::StrCat(path, ".", wrong->field), "found ", wrong->value, "; expected ",
                 wrong->expected);
  }
  if (IsOptimizer(optimizer)) return absl::OkStatus();
  return Wrong(path, "names no optimizer that this version has; expected one of ", OptimizerKinds(),
               ", such as 'adam: {}'");
}

absl::Status Tables(const v1::JobSpec& spec) {
  if (constexpr int kOwn = kMostTables - 2; spec.tables_size() > kOwn) {
    return Wrong("tables", "found ", spec.tables_size(), "; expected at most ", kOwn);
  }
  std::set<std::string> used;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    used.insert(column.table().begin(), column.table().end());
  }
  std::set<std::string> names;
  for (int i = 0; i < spec.tables_size(); ++i) {
    const v1::TableSpec& table = spec.tables(i);
    const std::string path = absl::StrCat("tables[", i, "]");
    if (!IsName(table.name())) {
      return Wrong(path + ".name",
                   table.name().empty() ? "missing" : absl::StrCat("found '", table.name(), "'"),
                   "; expected 1 to 63 letters, digits, '_' and '-'");
    }
    if (table.name() == kDenseTable || table.name() == kDenseStatisticsTable) {
      return Wrong(path + ".name", "'", table.name(),
                   "' is reserved for the dense parameters; choose another name");
    }
    if (!names.insert(table.name()).second) {
      return Wrong(path + ".name", "'", table.name(),
                   "' is the name of an earlier table too; names must differ");
    }
    if (table.dim() < 1 || table.dim() > kMaxDim) {
      return Wrong(path + ".dim", "found ", table.dim(), "; expected 1 .. ", kMaxDim);
    }
    TESSERA_RETURN_IF_ERROR(Initializer(table.initializer(), path + ".initializer"));
    TESSERA_RETURN_IF_ERROR(Admission(table.admission(), path + ".admission"));
    if (table.expiry().min_norm() < 0) {
      return Wrong(path + ".expiry.min_norm", "found ", table.expiry().min_norm(),
                   "; expected 0 or more");
    }
    if (table.expiry().min_frequency() > Expiry::kMostFrequency) {
      return Wrong(path + ".expiry.min_frequency", "found ", table.expiry().min_frequency(),
                   "; expected at most ", Expiry::kMostFrequency,
                   ", up to which updates are counted");
    }
    TESSERA_RETURN_IF_ERROR(
        Optimizer(table.has_optimizer(), table.optimizer(), path + ".optimizer"));
    if (used.count(table.name()) == 0) {
      return Wrong(path, "no column looks up its ids in '", table.name(),
                   "'; name it as a sparse column's 'table' or leave it out");
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::validate
