#pragma once

#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"

namespace tessera {

// What a job's loss and evaluation say together. Pure.

// Labels are 0 or 1, and the model's output is a logit; else both are any numbers.
bool HasClasses(const v1::ModelSpec& model);

// The metrics to compute, and the one of them that rules follow, defaults filled in.
std::vector<std::string> MetricsOf(const v1::JobSpec& spec);
std::string MonitorOf(const v1::JobSpec& spec);

// What rules compare where a metric is followed: itself, or where nearer to 1 is better its
// distance from 1; and whether a larger one is better.
struct Followed {
  double value;
  bool larger_is_better;
};
Followed Follow(const std::string& metric, double value);

}  // namespace tessera
