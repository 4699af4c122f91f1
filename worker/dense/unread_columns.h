#pragma once

#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// The columns of spec.data, in its order, that nothing in its model reads: dense ones, and sparse
// ones whose rows it reads in no table. Columns that say which samples are compared (group_by of
// model and evaluation) are none of them.
std::vector<std::string> UnreadColumns(const v1::JobSpec& spec, const Model& model);

}  // namespace tessera::worker
