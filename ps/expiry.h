#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/row_layout.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// Which rows of a table go at the cut of a checkpoint, by its ExpirySpec: a pure function of the
// row and the step, so it does not depend on which ps holds the row. A value; thread-safe.
class Expiry {
 public:
  // INVALID_ARGUMENT names table and field: a norm that is negative or not finite.
  static absl::StatusOr<Expiry> New(const v1::ExpirySpec& spec, absl::string_view table);

  // Whether there is any rule.
  bool active() const { return after_steps_ > 0 || min_frequency_ > 0 || min_norm_ > 0; }
  // `applied_steps`: of the cut; a row that step s updated has gone applied_steps - 1 - s steps
  // without an update. A row that no update has reached counts as of step 0: it holds nothing but
  // its initial value. A row that goes at one step goes at every later one, as long as nothing
  // changes it: rows on disk are taken long after the cut that they expired at.
  bool Takes(const Row& row, const RowLayout& layout, uint64_t applied_steps) const;

 private:
  Expiry() = default;

  uint64_t after_steps_ = 0;
  uint32_t min_frequency_ = 0;
  float min_norm_ = 0;
  uint64_t grace_steps_ = 1;
};

}  // namespace tessera::ps
