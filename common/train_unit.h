#pragma once

#include <cstdint>

#include "tessera/v1/work.pb.h"

namespace tessera {

// For a unit of training: the step of a batch; the batch of a step; how many of the window's
// `records` are in its batches [begin, end).
uint64_t StepOf(const v1::Train& unit, uint64_t batch);
uint64_t BatchOf(const v1::Train& unit, uint64_t step);
uint64_t RecordsOfBatches(const v1::Train& unit, uint64_t begin, uint64_t end, uint64_t records);
// Whether a batch is set aside; whether all are; and how many records the unit's other batches
// have.
bool IsSetAside(const v1::Train& unit, uint64_t batch);
bool AllSetAside(const v1::Train& unit);
uint64_t RecordsToTrain(const v1::Train& unit, uint64_t records);

}  // namespace tessera
