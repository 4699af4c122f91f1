#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Whether `word` says where a job may compute, as train.device does: "auto", "cpu", "cuda" or
// "cuda:N", N below 64.
bool IsDevice(absl::string_view word);

// The error of a --device flag, which may also be "emulated" (worker/device.h), with the values
// that it may have; empty: no error.
std::string WrongDeviceFlag(const std::string& word);

}  // namespace tessera
