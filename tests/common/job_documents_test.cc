// What documents say of losses and metrics is what there is.
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/job/tasks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/documents.h"

namespace tessera {
namespace {

using math::Better;
using math::MetricInfo;
using testing::HasSubstr;
using Names = std::set<std::string>;

// On one line, without what is in parentheses.
std::string Plain(const std::string& text) {
  return std::regex_replace(std::regex_replace(text, std::regex("\\s+"), " "),
                            std::regex(" \\([^)]*\\)"), "");
}

Names Listed(const std::string& text) {
  const std::vector<std::string> names =
      absl::StrSplit(absl::StrReplaceAll(Plain(text), {{" and ", ", "}}), ", ");
  return {names.begin(), names.end()};
}

std::string Written(const MetricInfo& metric) {
  return absl::StrReplaceAll(metric.name, {{"@10", "@k"}});
}

std::string Written(Better better) {
  return better == Better::kLarger    ? "larger"
         : better == Better::kSmaller ? "smaller"
                                      : "nearer to 1";
}

const char kJobProto[] = "proto/tessera/v1/job.proto";

TEST(JobProto, SaysOfEachMetricWhatIsBetterAndItsLosses) {
  const std::string text =
      Between(TextOf(kJobProto), "message EvaluationSpec {", "repeated string metrics");
  const std::regex row("// {3}(\\S.*?) +(larger|smaller|nearer to 1) +(.*)");
  std::map<std::string, std::pair<std::string, Names>> rows;
  for (std::sregex_iterator i(text.begin(), text.end(), row), end; i != end; ++i) {
    for (const std::string& name : Listed((*i)[1])) {
      EXPECT_TRUE(rows.insert({name, {(*i)[2], Listed((*i)[3])}}).second) << name;
    }
  }
  for (const MetricInfo& metric : math::AllMetrics()) {
    SCOPED_TRACE(metric.name);
    EXPECT_TRUE(rows.contains(Written(metric))) << "is not in the list of EvaluationSpec.metrics";
    if (!rows.contains(Written(metric))) continue;
    Names losses;
    for (const LossInfo& info : AllLosses()) {
      if (metric.IsOf(info.outputs)) losses.insert(LossName(info.loss));
    }
    EXPECT_EQ(rows[Written(metric)], std::pair(Written(metric.better), losses));
    rows.erase(Written(metric));
  }
  EXPECT_TRUE(rows.empty()) << rows.begin()->first << " is in the list and no metric";
}

TEST(JobProto, SaysWhichMetricsNeedGroups) {
  Names names;
  for (const MetricInfo& metric : math::AllMetrics()) {
    if (metric.groups) names.insert(Written(metric));
  }
  EXPECT_EQ(Listed(Between(Plain(TextOf(kJobProto)), "string monitor = 4; // ", ": the sparse")),
            names);
}

TEST(Readme, NamesEveryMetricAndThoseThatNeedAllScores) {
  const std::string text = Plain(TextOf("deploy/jobs/README.md"));
  Names all, kept;
  for (const MetricInfo& metric : math::AllMetrics()) {
    all.insert(Written(metric));
    const bool at_k = Written(metric) != metric.name;
    if (!metric.sums && !at_k) kept.insert(metric.name);
  }
  EXPECT_EQ(Listed(Between(text, "`evaluation.metrics` names any of ", ", with tasks as")), all);
  EXPECT_EQ(Listed(Between(text, "counts neither way. ", " and those at k need all scores")), kept);
}

TEST(Readme, NamesEveryLoss) {
  const std::string text =
      Between(Plain(TextOf("deploy/jobs/README.md")), "`model.loss` is ", "A column of role");
  for (const LossInfo& info : AllLosses()) EXPECT_THAT(text, HasSubstr(LossName(info.loss)));
}

}  // namespace
}  // namespace tessera
