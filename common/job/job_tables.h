#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/v1/job.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera {

// The dense parameters are tables too: the concatenation of all trained tensors (all statistics) in
// graph order is cut into rows of this many floats (dense_layout.h).
inline constexpr uint32_t kDenseBlockFloats = 1024;
inline constexpr char kDenseTable[] = "dense";  // trained by model.optimizer
// Running means and variances: the pushed "gradient" is subtracted (SGD, rate 1).
inline constexpr char kDenseStatisticsTable[] = "dense_statistics";

// The tables of a job as every ps holds them: the spec's, in its order, then kDenseTable, then
// kDenseStatisticsTable. A table's index here is its index in pulls, pushes and checkpoints.
std::vector<v1::PsTable> JobTables(const v1::JobSpec& spec);

// Bytes of a row's embedding, or of its gradient, between ps and workers (wire_type).
inline size_t WireRowBytes(uint32_t dim, bool bfloat16) {
  return size_t{dim} * (bfloat16 ? sizeof(uint16_t) : sizeof(float));
}
inline size_t WireRowBytes(const v1::TableSpec& table) {
  return WireRowBytes(table.dim(), table.wire_type() == v1::BFLOAT16);
}

}  // namespace tessera
