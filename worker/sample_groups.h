#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/batch.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// The index of the sparse column `name` in Batch::sparse; -1: no such column, or `name` is empty.
int32_t FindGroupColumn(const Schema& schema, const std::string& name);

// groups[i] = a number that is equal for samples whose ids in the column are equal, all of them and
// in order; 0 without ids. Empty for column -1.
void FindGroups(const Batch& batch, int32_t column, std::vector<uint64_t>* groups);

// The end of the run of rows with equal groups that begins at `begin` (below batch.size). `column`
// is not -1.
uint32_t EndOfRun(const Batch& batch, int32_t column, uint32_t begin);

}  // namespace tessera::worker
