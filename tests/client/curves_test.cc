#include "client/curves.h"

#include <cmath>
#include <limits>

#include "client/chart.h"
#include "client/job_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ChartTest, TicksAreRoundAndWithinTheRange) {
  EXPECT_THAT(RoundTicks(0, 1, 5), ElementsAre(0, 0.2, 0.4, testing::DoubleEq(0.6), 0.8, 1));
  EXPECT_THAT(RoundTicks(-3, 13, 4), ElementsAre(0, 5, 10));
  EXPECT_THAT(RoundTicks(0.4856, 0.6931, 5), ElementsAre(0.5, 0.55, testing::DoubleEq(0.6), 0.65));
  EXPECT_THAT(RoundTicks(782, 782, 4), ElementsAre(782));
  EXPECT_THAT(RoundTicks(0, 4e9, 4), ElementsAre(0, 1e9, 2e9, 3e9, 4e9));
}

TEST(ChartTest, ARangeOfRoundingErrorsIsFlat) {
  for (const double value : {0.6931471805599453, -3.0, 1e-300, 1e300}) {
    const double next = std::nextafter(value, INFINITY);
    EXPECT_THAT(RoundTicks(value, next, 6), ElementsAre(value));
    Chart chart;
    chart.lines.push_back({.points = {{1, value}, {2, next}}});
    EXPECT_THAT(ChartSvg(chart), HasSubstr("M58.0 162.0L626.0 162.0"));
    chart.lines[0].points = {{value, 1}, {next, 2}};
    EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("nan")));
  }
}

TEST(ChartTest, TicksAreNeverManyMoreThanWanted) {
  for (double length = 1; length > 1e-17; length /= 7) {
    for (const double low : {-1.0, 0.0, 0.6931471805599453, 1.0}) {
      const std::vector<double> ticks = RoundTicks(low, low + length, 6);
      EXPECT_GE(ticks.size(), 1);
      EXPECT_LE(ticks.size(), 8);
    }
  }
}

TEST(ChartTest, TicksHaveTheDigitsThatTellThemApart) {
  EXPECT_EQ(TickText(0, 0.2), "0");
  EXPECT_EQ(TickText(-0.0, 0.2), "0");
  EXPECT_EQ(TickText(0.6000000000000001, 0.2), "0.6");
  EXPECT_EQ(TickText(0.5, 0.05), "0.5");
  EXPECT_EQ(TickText(0.55, 0.05), "0.55");
  EXPECT_EQ(TickText(0.98615, 5e-5), "0.98615");
  EXPECT_EQ(TickText(50'000, 10'000), "50k");
  EXPECT_EQ(TickText(1'500'000, 500'000), "1.5M");
  EXPECT_EQ(TickText(2e9, 1e9), "2G");
  EXPECT_EQ(TickText(20'001, 1), "20001");
}

TEST(ChartTest, ALineHasAGapWhereAValueIsUnknown) {
  Chart chart = {.title = "loss", .x_name = "steps"};
  chart.lines.push_back({.name = "a<b", .points = {{0, 1}, {1, 2}, {2, NAN}, {3, 1}, {4, 2}}});
  const std::string svg = ChartSvg(chart);
  const size_t at = svg.find("class=\"line c0\" d=\"M");
  ASSERT_NE(at, std::string::npos) << svg;
  const std::string path = svg.substr(at, svg.find("/>", at) - at);
  EXPECT_EQ(Count(path, "M"), 2) << path;
  EXPECT_EQ(Count(path, "L"), 2) << path;
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(ChartTest, ALegendStandsWhereThereAreSeveralLines) {
  Chart chart;
  chart.lines.push_back({.name = "a<b", .points = {{0, 1}}});
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("legend")));
  chart.lines.push_back({.name = "c", .points = {{0, 2}}});
  EXPECT_THAT(ChartSvg(chart), HasSubstr("class=\"legend\">a&lt;b</text>"));
}

TEST(ChartTest, LinesFillTheFrameFromItsCornerToTheOther) {
  Chart chart;
  chart.lines.push_back({.points = {{10, 0.5}, {20, 0.7}}});
  // A twentieth of the range is left above and below: of 236 high, 10.7.
  EXPECT_THAT(ChartSvg(chart), HasSubstr("M58.0 269.3L626.0 54.7"));
}

TEST(ChartTest, OneValueIsInTheMiddleAndNoneIsNoChart) {
  Chart chart;
  EXPECT_EQ(ChartSvg(chart), "");
  chart.lines.push_back({.points = {{NAN, 1}, {1, NAN}}});
  EXPECT_EQ(ChartSvg(chart), "");
  chart.lines[0].points.push_back({5, 0});
  chart.lines[0].dots = true;
  EXPECT_THAT(ChartSvg(chart), HasSubstr("cx=\"342.0\" cy=\"162.0\""));
  chart.lines[0].points.back().y = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ChartSvg(chart), "");
}

v1::JobStatus Trained(const std::string& id, double learning_rate, int points = 4) {
  v1::JobStatus job;
  job.set_job_id(id);
  job.set_state(v1::SUCCEEDED);
  job.set_step(10 * points);
  job.set_samples(1000);
  job.mutable_spec()->set_name("clicks");
  job.mutable_spec()->mutable_model()->mutable_optimizer()->set_learning_rate(learning_rate);
  for (int p = 1; p <= points; ++p) {
    v1::TrainingPoint& point = *job.add_history();
    point.set_step(10 * p);
    point.set_unix_ms(60'000 * p);
    point.set_samples(100);
    point.set_seconds(30);
    point.set_loss(1.0 / p);
    if (p > 1) point.set_auc(0.5 + 0.1 * p);
  }
  for (const uint64_t step : {15, 40}) {
    v1::Evaluation& evaluation = *job.add_evaluations();
    evaluation.set_split("validation");
    evaluation.set_step(step);
    (*evaluation.mutable_metrics())["auc"] = 0.7;
    (*evaluation.mutable_metrics())["logloss"] = step == 15 ? 0.4 : 0.35;
  }
  v1::Event& event = *job.add_events();
  event.set_unix_ms(90'000);
  event.set_message("worker <0> is lost");
  return job;
}

std::string Page(const std::vector<nlohmann::json>& jobs, CurveAxis axis = CurveAxis::kSteps) {
  const absl::StatusOr<std::string> page = CurvesPage(jobs, axis);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

TEST(CurvesTest, AJobHasAChartOfEveryMetricOfItsLossAndOfItsSpeed) {
  const std::string page = Page({JobJson(Trained("clicks-1", 0.1))});
  EXPECT_EQ(Count(page, "<svg"), 4);
  EXPECT_EQ(Count(page, "</svg>"), 4);
  const size_t auc = page.find(">auc: validation, and in training (dashed)<");
  const size_t logloss = page.find(">validation logloss<");
  const size_t loss = page.find(">loss in training<");
  const size_t speed = page.find(">samples trained in a second<");
  EXPECT_LT(auc, logloss);
  EXPECT_LT(logloss, loss);
  EXPECT_LT(loss, speed);
  EXPECT_NE(speed, std::string::npos);
  EXPECT_THAT(page, HasSubstr("<title>validation 0.35 at 40</title>"));
  EXPECT_THAT(page, HasSubstr("<title>worker &lt;0&gt; is lost</title>"));
  EXPECT_THAT(page, Not(HasSubstr("What differs")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("worker <0>")));
}

TEST(CurvesTest, AnEvaluationIsWhereItsStepIsAlongAnyAxis) {
  const std::vector<nlohmann::json> jobs = {JobJson(Trained("clicks-1", 0.1))};
  // Half-way from the first point to the second: 150 samples, 45 s.
  EXPECT_THAT(Page(jobs, CurveAxis::kSamples), HasSubstr("<title>validation 0.4 at 150</title>"));
  EXPECT_THAT(Page(jobs, CurveAxis::kMinutes), HasSubstr("<title>validation 0.4 at 0.75</title>"));
  EXPECT_THAT(Page(jobs, CurveAxis::kMinutes), HasSubstr(">minutes of training<"));
}

TEST(CurvesTest, UnitsThatEndTogetherAreOneRate) {
  v1::JobStatus job = Trained("clicks-1", 0.1);
  job.clear_events();
  job.mutable_history(1)->set_seconds(60);
  job.mutable_history(2)->set_seconds(0.001);
  job.mutable_history(3)->set_seconds(0);
  const std::string page = Page({JobJson(job)});
  const std::string speed = page.substr(page.rfind("<svg"));
  // 100 in 30 s; then 300 in 60.001.
  EXPECT_THAT(speed, HasSubstr("samples trained in a second"));
  EXPECT_THAT(speed, HasSubstr("d=\"M200.0 269.3L626.0 54.7\""));
  EXPECT_THAT(speed, HasSubstr(">3.5</text>"));
  EXPECT_THAT(speed, HasSubstr(">5</text>"));
  EXPECT_THAT(speed, Not(HasSubstr(">5.5</text>")));
}

TEST(CurvesTest, JobsSideBySideShowWhatDiffersInTheirSpecs) {
  const std::string page =
      Page({JobJson(Trained("clicks-1", 0.125)), JobJson(Trained("clicks-1", 0.25))});
  EXPECT_EQ(Count(page, "<svg"), 4);
  EXPECT_THAT(page, HasSubstr("clicks-1 (2)"));
  EXPECT_THAT(page, HasSubstr("<tr><td>model.optimizer.learning_rate</td><td>0.125</td><td>0.25"
                              "</td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("<td>name</td>")));
  EXPECT_THAT(page, HasSubstr("line c1"));
}

TEST(CurvesTest, WhatIsNoJobIsRefused) {
  const auto error = [](const std::vector<nlohmann::json>& jobs) {
    return CurvesPage(jobs, CurveAxis::kSteps).status();
  };
  for (const char* text :
       {"{}", "[1]", "3", R"({"job_id": "a"})", R"({"job_id": 3, "history": []})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(error({nlohmann::json::parse(text)}))) << text;
  }
  v1::JobStatus job = Trained("clicks-7", 0.1, 0);
  job.clear_evaluations();
  EXPECT_TRUE(absl::IsFailedPrecondition(error({JobJson(job)})));
  EXPECT_THAT(std::string(error({JobJson(job)}).message()), HasSubstr("clicks-7"));
  job.set_task(v1::PREDICT);
  EXPECT_TRUE(absl::IsInvalidArgument(error({JobJson(job)})));
  EXPECT_THAT(std::string(error({JobJson(job)}).message()),
              HasSubstr("job clicks-7 does not train: there is nothing to draw"));
  const std::vector<nlohmann::json> many(9, JobJson(Trained("clicks-1", 0.1)));
  EXPECT_THAT(std::string(error(many).message()), HasSubstr("9 jobs to draw, expected at most 8"));
}

// Files may hold anything.
TEST(CurvesTest, AJobWithPartsOfOtherKindsIsDrawnWithoutThem) {
  const nlohmann::json job = JobJson(Trained("clicks-1", 0.1));
  for (const auto& [key, value] : job.items()) {
    for (const char* other :
         {"null", "7", "\"x\"", "[]", "[7, null, [2]]", "{}", R"({"a": [1]})"}) {
      nlohmann::json changed = job;
      changed[key] = nlohmann::json::parse(other);
      (void)CurvesPage({changed, job}, CurveAxis::kMinutes);
      for (const char* list : {"history", "evaluations", "events"}) {
        for (const auto& [field, of_field] : job[list][0].items()) {
          nlohmann::json inner = job;
          inner[list][0][field] = nlohmann::json::parse(other);
          EXPECT_TRUE(CurvesPage({inner}, CurveAxis::kSamples).ok()) << list << " " << field;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::client
