#include "client/job_json.h"

#include "absl/strings/ascii.h"
#include "google/protobuf/util/json_util.h"

namespace tessera::client {

using nlohmann::json;

std::string StateName(v1::JobState state) {
  std::string name = absl::AsciiStrToLower(v1::JobState_Name(state));
  if (!name.empty()) name[0] = absl::ascii_toupper(static_cast<unsigned char>(name[0]));
  return name;
}

std::string Dump(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json MetricsJson(const v1::Evaluation& evaluation) {
  json metrics = json::object();
  for (const auto& [name, value] : evaluation.metrics()) metrics[name] = value;
  return metrics;
}

json NodeJson(const v1::NodeStatus& node) {
  return {{"kind", absl::AsciiStrToLower(v1::NodeKind_Name(node.kind()))},
          {"name", node.name()},
          {"address", node.address()},
          {"incarnation", node.incarnation()},
          {"alive", node.alive()},
          {"rank", node.rank()},
          {"job_id", node.job_id()},
          {"last_seen_unix_ms", node.last_seen_unix_ms()},
          {"doing", node.doing()},
          {"resident_bytes", node.resident_bytes()},
          {"rows", node.rows()},
          {"pid", node.pid()}};
}

json EvaluationsJson(const v1::JobStatus& status) {
  json evaluations = json::array();
  for (const v1::Evaluation& evaluation : status.evaluations()) {
    evaluations.push_back({{"split", evaluation.split()},
                           {"epoch", evaluation.epoch()},
                           {"step", evaluation.step()},
                           {"samples", evaluation.samples()},
                           {"metrics", MetricsJson(evaluation)},
                           {"best", evaluation.best()}});
  }
  return evaluations;
}

json SummaryJson(const v1::JobStatus& status) {
  json metrics = json::object();
  for (const auto& [split, evaluation] : status.final_metrics()) {
    metrics[split] = MetricsJson(evaluation);
  }
  return {{"job_id", status.job_id()},
          {"state", StateName(status.state())},
          {"reason", status.reason()},
          {"message", status.message()},
          {"metrics", metrics},
          {"steps", status.step()},
          {"epochs", status.epoch()},
          {"samples", status.samples()},
          {"bad_records", status.bad_records()},
          {"samples_per_second", status.mean_samples_per_second()},
          {"seconds_to_first_step", status.seconds_to_first_step()},
          {"checkpoint", status.checkpoint()},
          {"restarts", status.restarts()}};
}

json SpecJson(const v1::JobSpec& spec) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(spec, &text, options).ok()) return json();
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

json JobJson(const v1::JobStatus& status) {
  json job = SummaryJson(status);
  job["spec"] = SpecJson(status.spec());
  job["task"] = status.task() == v1::PREDICT    ? "predict"
                : status.task() == v1::EVALUATE ? "evaluate"
                                                : "train";
  job["output"] = status.output();
  job["phase"] = status.phase();
  job["rows"] = status.rows();
  job["row_bytes"] = status.row_bytes();
  job["generation"] = status.generation();
  job["created_unix_ms"] = status.created_unix_ms();
  job["started_unix_ms"] = status.started_unix_ms();
  job["finished_unix_ms"] = status.finished_unix_ms();
  job["progress"] = {{"epochs", status.epochs()},
                     {"total_steps", status.total_steps()},
                     {"samples_per_second", status.samples_per_second()},
                     {"loss", status.loss()},
                     {"train_auc", status.train_auc()},
                     {"eta_seconds", status.eta_seconds()},
                     {"learning_rate_scale", status.learning_rate_scale()},
                     {"bad_records", status.bad_records()},
                     {"set_aside_records", status.set_aside_records()},
                     {"lost_steps", status.lost_steps()}};
  if (status.has_suspending()) {
    job["suspending"] = {{"preempted_by", status.suspending().preempted_by()},
                         {"since_unix_ms", status.suspending().since_unix_ms()}};
  }
  if (status.has_worker_scaling()) {
    job["worker_scaling"] = {{"from", status.worker_scaling().from()},
                             {"to", status.worker_scaling().to()},
                             {"since_unix_ms", status.worker_scaling().since_unix_ms()}};
  }
  if (status.has_scaling()) {
    const v1::Scaling& scaling = status.scaling();
    job["scaling"] = {
        {"from", scaling.from()},
        {"to", scaling.to()},
        {"drain", std::vector<std::string>(scaling.drain().begin(), scaling.drain().end())},
        {"phase", scaling.phase()},
        {"partitions", scaling.partitions()},
        {"rows", scaling.rows()},
        {"bytes", scaling.bytes()},
        {"since_unix_ms", scaling.since_unix_ms()}};
  }
  job["partitions"] = json::object();
  for (const v1::PsShare& share : status.shares()) {
    job["partitions"][share.name()] = share.partitions();
  }
  job["evaluations"] = EvaluationsJson(status);
  job["history"] = json::array();
  for (const v1::TrainingPoint& point : status.history()) {
    job["history"].push_back({{"step", point.step()},
                              {"unix_ms", point.unix_ms()},
                              {"samples", point.samples()},
                              {"seconds", point.seconds()},
                              {"loss", point.has_loss() ? json(point.loss()) : json()},
                              {"auc", point.has_auc() ? json(point.auc()) : json()}});
  }
  job["nodes"] = json::array();
  for (const v1::NodeStatus& node : status.nodes()) job["nodes"].push_back(NodeJson(node));
  job["events"] = json::array();
  for (const v1::Event& event : status.events()) {
    job["events"].push_back({{"unix_ms", event.unix_ms()}, {"message", event.message()}});
  }
  job["waits"] = json::array();
  for (const std::string& wait : status.waits()) job["waits"].push_back(wait);
  return job;
}

}  // namespace tessera::client
