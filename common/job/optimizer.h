#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/math/optim/row_options.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// What all rooms need to know about the optimizer of a table. Pure.

// Its field in OptimizerSpec, such as "row_wise_adagrad"; "none": not set or not known.
std::string OptimizerKind(const v1::OptimizerSpec& spec);
// "sgd, adagrad, ...": all that OptimizerKind may return but "none".
std::string OptimizerKinds();
// Whether it names an optimizer that has a formula (VisitOptimizer).
bool IsOptimizer(const v1::OptimizerSpec& spec);
// The kind and what else decides which state a row keeps, for people.
std::string OptimizerName(const v1::OptimizerSpec& spec);

// Optimizer floats of a row; all 0 where no optimizer is set.
struct OptimizerSlots {
  uint32_t per_float = 0;  // beside each embedding float
  uint32_t per_row = 0;

  uint32_t Floats(uint32_t dim) const { return per_float * dim + per_row; }
};
OptimizerSlots SlotsOf(const v1::OptimizerSpec& spec);

// What it does besides its formula.
math::RowOptions RowOptionsOf(const v1::OptimizerSpec& spec);

// Whether the step of an element depends on all of the whole that it is a part of: a row of a
// table, or of dense parameters a tensor.
bool StepsByWhole(const v1::OptimizerSpec& spec);

// Whether a row's slots are sums over its updates, so that what several workers have made of their
// copies of it may be added up: where not, one alone may train rows for their ps
// (row_cache.write_back).
bool HasSummedSlots(const v1::OptimizerSpec& spec);

// The first number that is out of its range, defaults filled in; none where the spec names no
// optimizer.
struct WrongNumber {
  std::string field;  // within OptimizerSpec, such as "adam.beta1"
  float value;
  const char* expected;  // such as "more than 0"
};
std::optional<WrongNumber> FirstWrongNumber(const v1::OptimizerSpec& spec);

}  // namespace tessera
