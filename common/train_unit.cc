#include "common/train_unit.h"

#include <algorithm>

namespace tessera {

uint64_t StepOf(const v1::Train& unit, uint64_t batch) {
  return unit.first_step() + (batch - unit.batch_begin());
}

uint64_t BatchOf(const v1::Train& unit, uint64_t step) {
  return unit.batch_begin() + (step - unit.first_step());
}

uint64_t RecordsOfBatches(const v1::Train& unit, uint64_t begin, uint64_t end, uint64_t records) {
  return std::min(end * unit.batch_size(), records) - std::min(begin * unit.batch_size(), records);
}

bool IsSetAside(const v1::Train& unit, uint64_t batch) {
  return std::find(unit.set_aside().begin(), unit.set_aside().end(), StepOf(unit, batch)) !=
         unit.set_aside().end();
}

bool AllSetAside(const v1::Train& unit) {
  uint64_t batch = unit.batch_begin();
  while (batch < unit.batch_end() && IsSetAside(unit, batch)) ++batch;
  return batch == unit.batch_end();
}

uint64_t RecordsToTrain(const v1::Train& unit, uint64_t records) {
  uint64_t trained = RecordsOfBatches(unit, unit.batch_begin(), unit.batch_end(), records);
  for (uint64_t batch = unit.batch_begin(); batch < unit.batch_end(); ++batch) {
    if (IsSetAside(unit, batch)) trained -= RecordsOfBatches(unit, batch, batch + 1, records);
  }
  return trained;
}

}  // namespace tessera
