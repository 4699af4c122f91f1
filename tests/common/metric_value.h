#pragma once

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace tessera {

// The value of the metric `name`, with its labels, in `text` of Prometheus's format. A test that
// asks for one that is not there has failed.
inline double MetricValue(absl::string_view text, const std::string& name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, name + " ") && absl::SimpleAtod(line, &value)) return value;
  }
  ADD_FAILURE() << "no metric " << name << " in " << text;
  return -1;
}

}  // namespace tessera
