#pragma once

#include <string>

#include "tessera/v1/job.pb.h"

namespace tessera {

// The job as YAML that ParseJobYaml reads: the fields that are set, in the schema's order. Pure.
std::string JobToYaml(const v1::JobSpec& spec);

}  // namespace tessera
