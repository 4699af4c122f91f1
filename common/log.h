#pragma once

#include "absl/strings/string_view.h"
#include "spdlog/spdlog.h"

namespace tessera {

// Sends log lines to stderr as "2026-01-02 03:04:05.678 I ps-0] text". main calls it once. `level`
// is one of trace, debug, info, warning, error, off.
void InitLog(absl::string_view process, absl::string_view level);

}  // namespace tessera
