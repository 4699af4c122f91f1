#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Whether it says where a job may compute, as train.device does: "auto", "cpu", "cuda" or "cuda:N",
// N below 64.
bool IsDevice(absl::string_view word);

// Of a --device flag, which may say "emulated", too (worker/device.h): what is wrong with it, and
// what it may be; empty: nothing.
std::string WrongDeviceFlag(const std::string& word);

}  // namespace tessera
