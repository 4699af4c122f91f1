#pragma once

// The messages of the ONNX format (namespace onnx), with those of the domain ai.onnx.ml.
#ifndef ONNX_ML
#define ONNX_ML 1
#endif
#include "onnx/onnx_pb.h"
