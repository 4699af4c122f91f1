#pragma once

#include <string>
#include <vector>

#include "common/job/tasks.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The metrics of a job, which its losses and its EvaluationSpec decide. Pure.

// MetricsOf: the metrics to compute, defaults filled in. MonitorOf: the one that rules follow. With
// several tasks a metric has its task's name; a metric without a task applies to all of them.
std::vector<std::string> MetricsOf(const v1::JobSpec& spec);
std::string MonitorOf(const v1::JobSpec& spec);
// The metrics of a task with this loss if evaluation.metrics is empty; rules follow the first.
std::vector<std::string> DefaultMetrics(v1::Loss loss);

// The value that rules compare when they follow a metric: the metric itself, or its distance from 1
// if nearer to 1 is better; and whether a larger one is better.
struct Followed {
  double value;
  bool larger_is_better;
};
Followed Follow(const std::string& metric, double value);

// Whether all metrics of the job can be added up in parts (ScoreSums), so that evaluations need not
// keep scores.
bool MeasuresInParts(const v1::JobSpec& spec);
// The metrics of the job's tasks that can be added up in parts, without the tasks' names.
std::vector<std::string> MetricsInParts(const v1::JobSpec& spec);

// The metrics of `names` that belong to the task, without the task's name.
std::vector<std::string> MetricsOfTask(const JobTask& task, const std::vector<std::string>& names);

}  // namespace tessera
