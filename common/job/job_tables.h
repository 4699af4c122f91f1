#pragma once

#include <vector>

#include "tessera/v1/job.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera {

// The dense parameters are tables too: the concatenation of all trained tensors (all statistics) in
// graph order is cut into rows (dense_layout.h).
inline constexpr char kDenseTable[] = "dense";  // trained by model.optimizer
// Running means and variances: the pushed "gradient" is subtracted (SGD, rate 1).
inline constexpr char kDenseStatisticsTable[] = "dense_statistics";

// The tables of a job as every ps holds them: the spec's, in its order, then kDenseTable, then
// kDenseStatisticsTable. A table's index here is its index in pulls, pushes and checkpoints.
std::vector<v1::PsTable> TablesOf(const v1::JobSpec& spec);

}  // namespace tessera
