#include "client/curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/chart.h"
#include "client/job_json.h"
#include "client/progress.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera::client {
namespace {

using nlohmann::json;

// Objects may come from files: a part that is missing or of another kind is null, NaN or "".
const json& Part(const json& object, const char* name) {
  static const json& none = *new json();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() ? *found : none;
}
double Number(const json& object, const char* name) {
  const json& part = Part(object, name);
  return part.is_number() ? part.get<double>() : NAN;
}
std::string Text(const json& object, const char* name) {
  const json& part = Part(object, name);
  return part.is_string() ? part.get<std::string>() : "";
}

// A job's history: the place in its training after each step, and when it was there.
class History {
 public:
  explicit History(const json& job) {
    Place at;
    for (const json& point : Part(job, "history")) {
      at.step = Number(point, "step");
      at.samples += Number(point, "samples");
      at.minutes += Number(point, "seconds") / 60;
      at.unix_ms = Number(point, "unix_ms");
      places_.push_back(at);
    }
  }

  size_t size() const { return places_.size(); }
  double At(size_t point, CurveAxis axis) const { return places_[point].*MemberOf(axis); }
  // Interpolates linearly between two points; NaN before anything was trained.
  double AfterStep(double step, CurveAxis axis) const {
    return Between(step, &Place::step, MemberOf(axis));
  }
  double AtTime(double unix_ms, CurveAxis axis) const {
    return Between(unix_ms, &Place::unix_ms, MemberOf(axis));
  }

 private:
  struct Place {
    double step = 0, samples = 0, minutes = 0, unix_ms = 0;
  };
  using Member = double Place::*;
  static Member MemberOf(CurveAxis axis) {
    switch (axis) {
      case CurveAxis::kSamples:
        return &Place::samples;
      case CurveAxis::kMinutes:
        return &Place::minutes;
      default:
        return &Place::step;
    }
  }
  double Between(double value, Member from, Member to) const {
    const auto after = std::lower_bound(places_.begin(), places_.end(), value,
                                        [from](const Place& p, double v) { return p.*from < v; });
    if (places_.empty()) return NAN;
    if (after == places_.end()) return places_.back().*to;
    const Place before = after == places_.begin() ? Place() : *(after - 1);
    if (after == places_.begin() && from == &Place::unix_ms) return 0;  // when it began is unknown
    const double length = (*after).*from - before.*from;
    const double part = length > 0 ? (value - before.*from) / length : 1;
    return before.*to + part * ((*after).*to - before.*to);
  }

  std::vector<Place> places_;
};

struct Job {
  explicit Job(const json& object)
      : object(object), history(object), name(Text(object, "job_id")) {}
  const json& object;
  History history;
  std::string name;  // differs from the others' names
};

ChartLine HistoryCurve(const Job& job, int color, CurveAxis axis, const char* value) {
  ChartLine line = {.color = color};
  size_t i = 0;
  for (const json& point : Part(job.object, "history")) {
    line.points.push_back({job.history.At(i++, axis), Number(point, value)});
  }
  return line;
}

// Each rate is that of a while, since units of several workers may end at the same moment.
ChartLine RateCurve(const Job& job, int color, CurveAxis axis) {
  constexpr double kWhile = 1.0 / 64;  // of the whole time
  const History& history = job.history;
  ChartLine line = {.color = color};
  if (history.size() == 0) return line;
  const size_t last = history.size() - 1;
  const double all = history.At(last, CurveAxis::kMinutes);
  double samples = 0, minutes = 0;  // up to the last point of the curve
  for (size_t i = 0; i <= last; ++i) {
    const double now = history.At(i, CurveAxis::kMinutes);
    const bool too_short = now - minutes < all * kWhile || now <= minutes;
    const bool rest_too_short = i < last && all - now < all * kWhile;
    if (too_short || rest_too_short) continue;
    const double trained = history.At(i, CurveAxis::kSamples);
    line.points.push_back({history.At(i, axis), (trained - samples) / (60 * (now - minutes))});
    samples = trained;
    minutes = now;
  }
  return line;
}

ChartLine EvaluationCurve(const Job& job, int color, CurveAxis axis, const std::string& metric) {
  ChartLine line = {.color = color, .dots = true};
  for (const json& evaluation : Part(job.object, "evaluations")) {
    if (Text(evaluation, "split") != "validation") continue;
    const json& metrics = Part(evaluation, "metrics");
    line.points.push_back(
        {job.history.AfterStep(Number(evaluation, "step"), axis), Number(metrics, metric.c_str())});
  }
  return line;
}

bool HasPoints(const ChartLine& line) {
  return std::any_of(line.points.begin(), line.points.end(), [](const ChartPoint& point) {
    return std::isfinite(point.x) && std::isfinite(point.y);
  });
}

// The metrics of all jobs, in the order for people (MetricsInOrder).
std::vector<std::string> Metrics(const std::vector<Job>& jobs) {
  v1::Evaluation all;
  for (const Job& job : jobs) {
    for (const json& evaluation : Part(job.object, "evaluations")) {
      const json& metrics = Part(evaluation, "metrics");
      for (const auto& [name, value] : metrics.items()) (*all.mutable_metrics())[name] = 0;
    }
  }
  return MetricsInOrder(all);
}

std::vector<Chart> Charts(const std::vector<Job>& jobs, CurveAxis axis) {
  const char* x_name = axis == CurveAxis::kSteps     ? "steps"
                       : axis == CurveAxis::kSamples ? "samples"
                                                     : "minutes of training";
  std::vector<Chart> charts;
  const auto add = [&](const std::string& title, auto line_of, const std::string& what) {
    Chart chart = {.title = title, .x_name = x_name};
    for (size_t j = 0; j < jobs.size(); ++j) {
      ChartLine line = line_of(jobs[j], static_cast<int>(j));
      if (!HasPoints(line)) continue;
      line.name = jobs.size() == 1 ? what : jobs[j].name;
      chart.lines.push_back(std::move(line));
    }
    charts.push_back(std::move(chart));
  };
  for (const std::string& metric : Metrics(jobs)) {
    add(
        absl::StrCat("validation ", metric),
        [&](const Job& job, int color) { return EvaluationCurve(job, color, axis, metric); },
        "validation");
    if (metric != "auc") continue;
    for (size_t j = 0; j < jobs.size(); ++j) {
      ChartLine line = HistoryCurve(jobs[j], static_cast<int>(j), axis, "auc");
      if (!HasPoints(line)) continue;
      charts.back().title = "auc: validation, and in training (dashed)";
      line.name = jobs.size() == 1 ? "training" : "";
      line.dashed = true;
      charts.back().lines.push_back(std::move(line));
    }
  }
  add(
      "loss in training",
      [&](const Job& job, int color) { return HistoryCurve(job, color, axis, "loss"); },
      "training");
  add(
      "samples trained in a second",
      [&](const Job& job, int color) { return RateCurve(job, color, axis); }, "samples/s");
  if (jobs.size() > 1) return charts;
  for (const json& event : Part(jobs[0].object, "events")) {
    charts.back().events.push_back(
        {jobs[0].history.AtTime(Number(event, "unix_ms"), axis), Text(event, "message")});
  }
  return charts;
}

void AppendRow(std::string* page, const std::vector<std::string>& cells,
               absl::string_view tag = "td") {
  *page += "<tr>";
  for (const std::string& cell : cells) absl::StrAppend(page, "<", tag, ">", cell, "</", tag, ">");
  *page += "</tr>\n";
}

// The result of each job; for one that has not ended, the metrics of its last evaluation.
void AppendSummary(const std::vector<Job>& jobs, std::string* page) {
  *page += "<table>\n";
  AppendRow(page,
            {"job", "state", "steps", "epochs", "samples", "samples/s", "restarts", "metrics"},
            "th");
  for (size_t j = 0; j < jobs.size(); ++j) {
    const json& job = jobs[j].object;
    const auto count = [&](const char* name) { return absl::StrFormat("%.0f", Number(job, name)); };
    std::string metrics;
    const auto append = [&](const std::string& split, const json& values) {
      absl::StrAppend(&metrics, metrics.empty() ? "" : "<br>", Escape(split));
      for (const auto& [name, value] : values.items()) {
        if (value.is_number()) {
          absl::StrAppendFormat(&metrics, " %s %.4f", Escape(name), value.get<double>());
        }
      }
    };
    const json& final_metrics = Part(job, "metrics");
    const json& evaluations = Part(job, "evaluations");
    if (!final_metrics.empty()) {
      for (const auto& [split, values] : final_metrics.items()) append(split, values);
    } else if (evaluations.is_array() && !evaluations.empty()) {
      append(Text(evaluations.back(), "split"), Part(evaluations.back(), "metrics"));
    }
    AppendRow(page, {absl::StrCat("<span class=\"swatch c", j, "\"></span>", Escape(jobs[j].name)),
                     Escape(Text(job, "state")), count("steps"), count("epochs"),
                     ShortNumber(Number(job, "samples")),
                     ShortNumber(Number(job, "samples_per_second")), count("restarts"), metrics});
  }
  *page += "</table>\n";
}

// "train.batch_size" -> "4096"
void Flatten(const json& value, const std::string& path, std::map<std::string, std::string>* out) {
  if (value.is_structured()) {
    for (const auto& [key, inner] : value.items()) {
      Flatten(inner,
              path.empty() ? key
                           : absl::StrCat(path, value.is_array() ? "[" : ".", key,
                                          value.is_array() ? "]" : ""),
              out);
    }
    return;
  }
  (*out)[path] = value.is_string() ? value.get<std::string>() : Dump(value);
}

void AppendDifferences(const std::vector<Job>& jobs, std::string* page) {
  std::vector<std::map<std::string, std::string>> specs(jobs.size());
  std::set<std::string> paths;
  for (size_t j = 0; j < jobs.size(); ++j) {
    Flatten(Part(jobs[j].object, "spec"), "", &specs[j]);
    for (const auto& [path, value] : specs[j]) paths.insert(path);
  }
  std::string rows;
  for (const std::string& path : paths) {
    std::vector<std::string> cells = {Escape(path)};
    std::set<std::string> values;
    for (const auto& spec : specs) {
      const auto found = spec.find(path);
      cells.push_back(found == spec.end() ? "<i>not set</i>" : Escape(found->second));
      values.insert(cells.back());
    }
    if (values.size() > 1) AppendRow(&rows, cells);
  }
  if (rows.empty()) return;
  *page += "<h2>What differs in their specs</h2>\n<table>\n";
  std::vector<std::string> head = {""};
  for (const Job& job : jobs) head.push_back(Escape(job.name));
  AppendRow(page, head, "th");
  absl::StrAppend(page, rows, "</table>\n");
}

void AppendEvents(const Job& job, std::string* page) {
  const json& events = Part(job.object, "events");
  if (events.empty()) return;
  absl::StrAppend(page, "<details><summary>What happened to ", Escape(job.name),
                  "</summary>\n<table>\n");
  for (const json& event : events) {
    const json& unix_ms = Part(event, "unix_ms");
    const absl::Time at = unix_ms.is_number_integer() ? absl::FromUnixMillis(unix_ms.get<int64_t>())
                                                      : absl::InfinitePast();
    AppendRow(page, {absl::FormatTime("%Y-%m-%d %H:%M:%S", at, absl::LocalTimeZone()),
                     Escape(Text(event, "message"))});
  }
  *page += "</table></details>\n";
}

constexpr char kStyle[] = R"(
body { background: var(--back); color: var(--text); font: 14px system-ui, sans-serif; margin: 1.5em auto; max-width: 1400px; padding: 0 1em; }
h1 { font-size: 20px; } h2 { font-size: 16px; }
table { border-collapse: collapse; margin-bottom: 1em; }
td, th { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--grid); vertical-align: top; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 1em; margin: 1em 0; }
.swatch { display: inline-block; width: 12px; height: 12px; margin-right: 6px; border-radius: 2px; background: var(--color); }
summary { cursor: pointer; margin: .5em 0; }
)";

}  // namespace

absl::StatusOr<std::string> CurvesPage(absl::Span<const json> objects, CurveAxis axis) {
  if (objects.size() > kChartColors) {
    return absl::InvalidArgumentError(
        absl::StrCat(objects.size(), " jobs to draw, expected at most ", kChartColors));
  }
  std::vector<Job> jobs;
  std::map<std::string, int> times;
  for (const json& object : objects) {
    Job& job = jobs.emplace_back(object);
    if (job.name.empty() || !object.contains("history")) {
      return absl::InvalidArgumentError(
          "expected an object with \"job_id\" and \"history\", as `tessera describe JOB --output "
          "json` prints it");
    }
    if (const std::string task = Text(object, "task"); task == "predict" || task == "evaluate") {
      return absl::InvalidArgumentError(
          absl::StrCat("job ", job.name,
                       " does not train: there is nothing to draw; name the job that trained the "
                       "checkpoint"));
    }
    // Jobs of several runs of `tessera local` may have one id, since each run counts from 1.
    if (const int before = times[job.name]++; before > 0)
      absl::StrAppend(&job.name, " (", before + 1, ")");
  }
  // One beside others has no curves yet.
  if (std::all_of(jobs.begin(), jobs.end(),
                  [](const Job& job) { return job.history.size() == 0; })) {
    const std::string& name = jobs.at(0).name;
    return absl::FailedPreconditionError(
        absl::StrCat("job ", name, " has trained nothing yet: try again when `tessera describe ",
                     name, "` shows a step"));
  }
  std::vector<std::string> names;
  for (const Job& job : jobs) names.push_back(Escape(job.name));
  const std::string title = absl::StrJoin(names, ", ");
  std::string page = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
      title, "</title>\n<style>", ChartStyle(), kStyle, "</style>\n</head>\n<body>\n<h1>", title,
      "</h1>\n");
  AppendSummary(jobs, &page);
  page += "<div class=\"charts\">\n";
  for (const Chart& chart : Charts(jobs, axis)) page += ChartSvg(chart);
  page += "</div>\n";
  if (jobs.size() > 1) AppendDifferences(jobs, &page);
  for (const Job& job : jobs) AppendEvents(job, &page);
  page += "</body>\n</html>\n";
  return page;
}

}  // namespace tessera::client
