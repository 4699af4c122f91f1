#pragma once

#include <cstdint>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera {

// The dense parameters are tables too: the concatenation of all trained tensors (all statistics) in
// graph order is cut into rows (dense_layout.h).
inline constexpr char kDenseTable[] = "dense";  // trained by model.optimizer
// Running means and variances: the pushed "gradient" is subtracted (SGD, rate 1).
inline constexpr char kDenseStatisticsTable[] = "dense_statistics";

// The most tables of a ps' job, those two among them.
inline constexpr int kMostTables = 1 << 12;
// A rank numbers its pushes from 0 up to below this: rows are marked with numbers below the largest
// of 32 bits, which stands for all from there on.
inline constexpr uint64_t kMostPushes = UINT32_MAX;

// The tables of a job as every ps holds them: the spec's, in its order, then kDenseTable, then
// kDenseStatisticsTable. A table's index here is its index in pulls, pushes and checkpoints.
std::vector<v1::PsTable> TablesOf(const v1::JobSpec& spec);

}  // namespace tessera
