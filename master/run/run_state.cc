#include "master/run/run_state.h"

#include "absl/strings/str_cat.h"

namespace tessera::master {
namespace {

std::string RunKey(uint64_t job_number, absl::string_view what) {
  return absl::StrCat(kRunPrefix, absl::Dec(job_number, absl::kZeroPad10), "/", what);
}

}  // namespace

std::string RunStateKey(uint64_t job_number) { return RunKey(job_number, "state"); }
std::string RunMapKey(uint64_t job_number) { return RunKey(job_number, "map"); }
std::string RunPlanKey(uint64_t job_number) { return RunKey(job_number, "plan"); }
std::string RunRankKey(uint64_t job_number, uint32_t rank) {
  return RunKey(job_number, absl::StrCat("rank/", rank));
}

v1::RunProcess ToProto(const RunNode& node) {
  v1::RunProcess process;
  process.set_name(node.name);
  process.set_address(node.address);
  process.set_incarnation(node.incarnation);
  process.set_process(node.process);
  return process;
}

RunNode NodeOf(const v1::RunProcess& process) {
  return {process.name(), process.address(), process.incarnation(), process.process()};
}

RunNode NodeOf(const Node& node) {
  return {node.name, node.address, node.incarnation, node.process};
}

}  // namespace tessera::master
