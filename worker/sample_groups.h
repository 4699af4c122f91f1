#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/batch.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// The place of the sparse column `name` in Batch::sparse; -1: there is none, or no name.
int32_t FindGroupColumn(const Schema& schema, const std::string& name);

// groups[i] = a number that is equal where the ids of the samples are, all of them and in order; 0
// for none. Left empty for column -1.
void FindGroups(const Batch& batch, int32_t column, std::vector<uint64_t>* groups);

// The end of the run of rows from `begin`, which is below batch.size, whose groups are equal;
// `column` is one of the batch.
uint32_t EndOfRun(const Batch& batch, int32_t column, uint32_t begin);

}  // namespace tessera::worker
