#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "master/actions/action.h"
#include "master/state/membership.h"
#include "tessera/v1/master_state.pb.h"

namespace tessera::master {

// Keys of the state log; see master_state.proto.
inline constexpr char kRunPrefix[] = "run/";
std::string RunStateKey(uint64_t job_number);
std::string RunMapKey(uint64_t job_number);
std::string RunPlanKey(uint64_t job_number);
std::string RunRankKey(uint64_t job_number, uint32_t rank);

v1::RunProcess ToProto(const RunNode& node);
RunNode NodeOf(const v1::RunProcess& process);
RunNode NodeOf(const Node& node);

// The durable state that an earlier master left of a run that trains.
struct SavedRun {
  v1::RunState state;
  v1::PlanState plan;
  std::vector<v1::RankState> ranks;
};

}  // namespace tessera::master
