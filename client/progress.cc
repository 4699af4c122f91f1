#include "client/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/job_client.h"
#include "client/job_json.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "common/math/metrics/evaluation_metrics.h"

namespace tessera::client {
namespace {

// Only printable characters of other processes' texts reach the terminal.
std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

}  // namespace

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "?";
  if (value < 999.5) return absl::StrFormat("%.0f", value);
  if (value < 999950) return absl::StrFormat("%.1fk", value / 1e3);
  return absl::StrFormat("%.2fM", value / 1e6);
}

std::string ShortDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return absl::StrCat(s, "s");
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  return absl::StrFormat("%dh%02dm", s / 3600, s % 3600 / 60);
}

std::vector<std::string> MetricsInOrder(const v1::Evaluation& evaluation) {
  std::vector<std::string> names;
  std::set<std::string> left;
  for (const auto& [name, value] : evaluation.metrics()) left.insert(name);
  const auto base = [](const std::string& name) {
    return name.substr(0, name.find_first_of("@/"));
  };
  for (const math::MetricInfo& metric : math::AllMetrics()) {
    for (const std::string& name : left) {
      if (base(name) == base(metric.name)) names.push_back(name);
    }
  }
  return names;
}

std::string MetricsText(const v1::Evaluation& evaluation) {
  return absl::StrJoin(MetricsInOrder(evaluation), " ",
                       [&](std::string* out, const std::string& name) {
                         absl::StrAppendFormat(out, "%s %.4f", name, evaluation.metrics().at(name));
                       });
}

std::string ProgressLine(const v1::JobStatus& status) {
  std::vector<std::string> parts;
  if (status.state() != v1::RUNNING || status.phase().empty()) {
    std::string state = StateName(status.state());
    if (!status.reason().empty()) absl::StrAppend(&state, " (", status.reason(), ")");
    if (!status.message().empty()) absl::StrAppend(&state, ": ", status.message());
    parts.push_back(Printable(state));
  } else {
    parts.push_back(Printable(status.phase()));
    if (status.has_suspending()) parts.push_back("to be suspended");
  }
  const bool trains = IsTraining(status.task());
  if (trains && status.state() == v1::RUNNING && status.step() > 0) {
    const auto of = [](uint64_t done, uint64_t all) {
      return all == 0 ? absl::StrCat(done) : absl::StrCat(done, "/", all);
    };
    parts.push_back(absl::StrCat("epoch ", of(status.epoch(), status.epochs())));
    parts.push_back(absl::StrCat("step ", of(status.step(), status.total_steps())));
    parts.push_back(absl::StrCat(ShortNumber(status.samples_per_second()), " samples/s"));
    parts.push_back(absl::StrFormat("loss %.4f", status.loss()));
    if (std::isfinite(status.train_auc()) && status.train_auc() > 0) {
      parts.push_back(absl::StrFormat("AUC %.4f", status.train_auc()));
    }
    if (status.evaluations_size() > 0) {
      const v1::Evaluation& last = status.evaluations(status.evaluations_size() - 1);
      parts.push_back(absl::StrCat(last.split(), " ", MetricsText(last)));
    }
    if (status.eta_seconds() > 0) {
      parts.push_back(absl::StrCat("ETA ", ShortDuration(status.eta_seconds())));
    }
  }
  return absl::StrJoin(parts, "  ");
}

std::string NodesLine(const v1::JobStatus& status) {
  std::vector<std::string> live, lost;
  for (const v1::NodeStatus& node : status.nodes()) {
    (node.alive() ? live : lost).push_back(Printable(node.name()));
  }
  std::vector<std::string> parts;
  if (!live.empty()) parts.push_back(absl::StrCat("live: ", absl::StrJoin(live, " ")));
  if (!lost.empty()) parts.push_back(absl::StrCat("lost: ", absl::StrJoin(lost, " ")));
  if (!status.waits().empty()) {
    parts.push_back(absl::StrCat("waits: ", Printable(absl::StrJoin(status.waits(), "; "))));
  }
  return absl::StrJoin(parts, "   ");
}

ProgressDisplay::ProgressDisplay(const Options& options) : options_(options) {}

ProgressDisplay::~ProgressDisplay() { std::fflush(options_.out); }

void ProgressDisplay::Erase() {
  // Moves up to the first live line, then erases everything below.
  if (live_lines_ > 0) std::fprintf(options_.out, "\x1b[%dA\x1b[J", live_lines_);
  live_lines_ = 0;
}

void ProgressDisplay::DrawLive(const std::vector<std::string>& lines) {
  last_live_ = lines;
  for (const std::string& line : lines) {
    // Cuts the line: one that wraps would be two lines to erase.
    const size_t width = static_cast<size_t>(std::max(options_.columns - 1, 10));
    std::fprintf(options_.out, "%s\n", line.substr(0, width).c_str());
    ++live_lines_;
  }
  std::fflush(options_.out);
}

void ProgressDisplay::Say(const std::string& line) {
  Erase();
  for (absl::string_view part : absl::StrSplit(line, '\n')) {
    std::fprintf(options_.out, "%s\n", Printable(part).c_str());
  }
  if (options_.terminal) DrawLive(last_live_);
  std::fflush(options_.out);
}

std::vector<std::string> ProgressDisplay::NewEvents(const v1::JobStatus& status) {
  std::vector<std::string> lines;
  for (const v1::Event& event : status.events()) {
    const bool known = std::any_of(shown_.begin(), shown_.end(), [&](const v1::Event& old) {
      return old.unix_ms() == event.unix_ms() && old.message() == event.message();
    });
    if (!known) lines.push_back(event.message());
  }
  shown_.assign(status.events().begin(), status.events().end());
  return lines;
}

int ProgressDisplay::FirstNew(const v1::JobStatus& status) const {
  // Searches by step, epoch and split, since the master forgets the oldest evaluations.
  for (int i = status.evaluations_size(); i-- > 0;) {
    const v1::Evaluation& evaluation = status.evaluations(i);
    if (evaluations_ > 0 && evaluation.step() == last_evaluation_.step() &&
        evaluation.epoch() == last_evaluation_.epoch() &&
        evaluation.split() == last_evaluation_.split()) {
      return i + 1;
    }
  }
  return std::min(evaluations_, status.evaluations_size());
}

void ProgressDisplay::Show(const v1::JobStatus& status) {
  Erase();
  for (const std::string& line : NewEvents(status)) {
    std::fprintf(options_.out, "  %s\n", Printable(line).c_str());
  }
  // A prediction's evaluations are those of its checkpoint.
  const int first = status.task() == v1::PREDICT ? status.evaluations_size() : FirstNew(status);
  for (int i = first; i < status.evaluations_size(); ++i) {
    const v1::Evaluation& evaluation = status.evaluations(i);
    std::fprintf(options_.out, "  epoch %u step %llu: %s %s%s\n", evaluation.epoch(),
                 static_cast<unsigned long long>(evaluation.step()),
                 Printable(evaluation.split()).c_str(), MetricsText(evaluation).c_str(),
                 evaluation.best() ? " (best)" : "");
  }
  evaluations_ = status.evaluations_size();
  if (evaluations_ > 0) last_evaluation_ = status.evaluations(evaluations_ - 1);

  std::vector<std::string> lines = {ProgressLine(status)};
  if (const std::string nodes = NodesLine(status); !nodes.empty()) lines.push_back(nodes);
  const bool changed = status.state() != state_ || status.phase() != phase_;
  state_ = status.state();
  phase_ = status.phase();
  if (options_.terminal && !HasEnded(status.state())) {
    DrawLive(lines);
    return;
  }
  last_live_.clear();
  const absl::Duration now = options_.clock->Monotonic();
  if (!changed && now < next_line_) return;
  next_line_ = now + options_.line_every;
  std::fprintf(options_.out, "%s\n", absl::StrJoin(lines, "   ").c_str());
  std::fflush(options_.out);
}

ProgressDisplay::Options DisplayOn(FILE* out) {
  ProgressDisplay::Options options;
  options.out = out;
  options.terminal = isatty(fileno(out)) == 1;
  winsize size = {};
  if (options.terminal && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

}  // namespace tessera::client
