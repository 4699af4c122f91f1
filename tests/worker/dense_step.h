#pragma once

#include "worker/dense/executor.h"

namespace tessera::worker::testing {

// A step whose caller has nothing to do meanwhile.
inline Executor::StepResult ForwardBackward(Executor& executor,
                                            const Executor::StepArguments& arguments) {
  executor.StartStep(arguments);
  return executor.FinishStep();
}

}  // namespace tessera::worker::testing
