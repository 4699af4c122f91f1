#pragma once

#include "nlohmann/json.hpp"
#include "tessera/v1/job_service.pb.h"

namespace tessera::client {

// Jobs as objects for scripts. Pure; numbers that are not finite become null.

// The result of a job:
//   {"job_id", "state": "Succeeded", "reason", "message", "metrics": {"validation": {"auc": ..}},
//    "steps", "epochs", "samples", "bad_records", "samples_per_second", "seconds_to_first_step",
//    "checkpoint", "restarts"}
nlohmann::json SummaryJson(const v1::JobStatus& status);
// The summary and "spec", "phase", "progress", "evaluations", "history", "nodes", "events",
// "waits".
nlohmann::json JobJson(const v1::JobStatus& status);
// The fields that are set, by their names in job.proto.
nlohmann::json SpecJson(const v1::JobSpec& spec);
// The object on one line; bytes that are no UTF-8 are replaced.
std::string Dump(const nlohmann::json& object);
nlohmann::json NodeJson(const v1::NodeStatus& node);
// "Succeeded", "Running": spelled as in Kubernetes.
std::string StateName(v1::JobState state);
// {"auc": 0.98, "logloss": 0.17}
nlohmann::json MetricsJson(const v1::Evaluation& evaluation);
// The job's evaluations, each with its split, epoch, step, samples and metrics, oldest first.
nlohmann::json EvaluationsJson(const v1::JobStatus& status);

}  // namespace tessera::client
