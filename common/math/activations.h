#pragma once

#include "common/math/activation/abs.h"
#include "common/math/activation/atan.h"
#include "common/math/activation/ceil.h"
#include "common/math/activation/clip.h"
#include "common/math/activation/cos.h"
#include "common/math/activation/elu.h"
#include "common/math/activation/erf.h"
#include "common/math/activation/exp.h"
#include "common/math/activation/floor.h"
#include "common/math/activation/gelu.h"
#include "common/math/activation/hard_sigmoid.h"
#include "common/math/activation/leaky_relu.h"
#include "common/math/activation/log.h"
#include "common/math/activation/pow.h"
#include "common/math/activation/relu.h"
#include "common/math/activation/round.h"
#include "common/math/activation/selu.h"
#include "common/math/activation/sigmoid.h"
#include "common/math/activation/silu.h"
#include "common/math/activation/sin.h"
#include "common/math/activation/softplus.h"
#include "common/math/activation/sqrt.h"
#include "common/math/activation/step.h"
#include "common/math/activation/tanh.h"

// The formulas of activation/, each with the name of its file: X(Formula, file). Code that runs
// over all formulas uses this list: the card's kernels and the tests. (Not PRelu, whose slope is
// trained.)
#define TESSERA_ACTIVATIONS(X) \
  X(Abs, abs)                  \
  X(Atan, atan)                \
  X(Ceil, ceil)                \
  X(Clip, clip)                \
  X(Cos, cos)                  \
  X(Elu, elu)                  \
  X(Erf, erf)                  \
  X(Exp, exp)                  \
  X(Floor, floor)              \
  X(Gelu, gelu)                \
  X(HardSigmoid, hard_sigmoid) \
  X(LeakyRelu, leaky_relu)     \
  X(Log, log)                  \
  X(Pow, pow)                  \
  X(Relu, relu)                \
  X(Round, round)              \
  X(Selu, selu)                \
  X(Sigmoid, sigmoid)          \
  X(Silu, silu)                \
  X(Sin, sin)                  \
  X(Softplus, softplus)        \
  X(Sqrt, sqrt)                \
  X(Step, step)                \
  X(Tanh, tanh)
