#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/config/yaml_job.h"

namespace tessera {

// Overrides one field of a job: "path.to.field=value". The value is YAML; an empty one clears the
// field. Elements of a list are named by index or by their field `name`:
//   train.epochs=3   tables.emb.dim=8   data.columns[2].type=string   data.test.files=[a.csv,b.csv]
//   train.schedule.plateau.factor=0.1   model.options.hidden=[64,64]
// Naming another member of a oneof replaces the one that was set (tables.emb.optimizer.sgd={}).
// INVALID_ARGUMENT starts with "--set ASSIGNMENT: " and, for an unknown name, suggests a known one;
// the job is unchanged then.
absl::Status ApplyOverride(absl::string_view assignment, LoadedJob& job);

}  // namespace tessera
