#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/math/optim/row_options.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// Properties of a table's optimizer that all rooms need. Pure.

// The optimizer's field in OptimizerSpec, such as "row_wise_adagrad"; "none": not set or not known.
std::string OptimizerKind(const v1::OptimizerSpec& spec);
// "sgd, adagrad, ...": all results of OptimizerKind but "none".
std::string OptimizerKinds();
// Whether `spec` names an optimizer that has a formula (VisitOptimizer).
bool IsOptimizer(const v1::OptimizerSpec& spec);
// The kind and, if the kind alone does not decide which state a row keeps, the option that does.
// For people.
std::string OptimizerName(const v1::OptimizerSpec& spec);

// The number of optimizer floats of a row; all 0 if no optimizer is set.
struct OptimizerSlots {
  uint32_t per_float = 0;  // for each embedding float
  uint32_t per_row = 0;

  uint32_t Floats(uint32_t dim) const { return per_float * dim + per_row; }
};
OptimizerSlots SlotsOf(const v1::OptimizerSpec& spec);

// The optimizer's options besides its formula.
math::RowOptions RowOptionsOf(const v1::OptimizerSpec& spec);

// Whether an element's step depends on its whole row of a table or, for dense parameters, its whole
// tensor.
bool StepsByWhole(const v1::OptimizerSpec& spec);

// Whether a row's slots are sums over its updates, so that the changes of several workers' copies
// can be added up. If not, only a single worker may train rows for the ps (row_cache.write_back).
bool HasSummedSlots(const v1::OptimizerSpec& spec);

// The first number that is out of range, defaults filled in; none if the spec names no optimizer.
struct WrongNumber {
  std::string field;  // within OptimizerSpec, such as "adam.beta1"
  float value;
  const char* expected;  // such as "more than 0"
};
std::optional<WrongNumber> FirstWrongNumber(const v1::OptimizerSpec& spec);

}  // namespace tessera
