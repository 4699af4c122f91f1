#pragma once

#include <string>

#include "tessera/v1/job.pb.h"

namespace tessera {

// The job as ParseJobYaml reads it: fields that are set, in the order of the schema. Pure.
std::string JobToYaml(const v1::JobSpec& spec);

}  // namespace tessera
