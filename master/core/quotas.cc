#include "master/core/quotas.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/yaml_file.h"
#include "common/status_macros.h"

namespace tessera::master {

absl::StatusOr<Quotas> Quotas::New(const v1::Quotas& spec) {
  Quotas quotas;
  for (int i = 0; i < spec.teams_size(); ++i) {
    const v1::Quota& quota = spec.teams(i);
    const std::string field = absl::StrCat("teams[", i, "].name");
    if (quota.name().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": missing; expected a team, or \"*\" for each that is not named"));
    }
    if (!quotas.teams_.emplace(quota.name(), quota).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": found \"", quota.name(), "\" twice; expected each team once"));
    }
  }
  return quotas;
}

const v1::Quota* Quotas::Of(const v1::JobSpec& spec) const {
  for (const std::string& name : {TeamOf(spec), std::string("*")}) {
    if (const auto found = teams_.find(name); found != teams_.end()) return &found->second;
  }
  return nullptr;
}

std::string TeamOf(const v1::JobSpec& spec) {
  return spec.team().empty() ? "default" : spec.team();
}

absl::StatusOr<Quotas> LoadQuotas(const std::string& path) {
  constexpr char kExpected[] = "quotas, such as {teams: [{name: ads, workers: 4}]}";
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path, kExpected));
  v1::Quotas spec;
  SourceMap sources;
  TESSERA_RETURN_IF_ERROR(ParseYaml(text, path, kExpected, spec, sources));
  absl::StatusOr<Quotas> quotas = Quotas::New(spec);
  if (!quotas.ok()) return sources.Locate(quotas.status());
  return quotas;
}

}  // namespace tessera::master
