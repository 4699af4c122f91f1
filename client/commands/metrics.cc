#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "common/process/number_flags.h"
#include "common/rpc/address_flags.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/metrics.grpc.pb.h"

namespace tessera::client {
namespace {

struct Metrics {
  std::string address;
  double wait_seconds = 10;
  std::vector<std::string> labels;  // NAME=VALUE
};

// "" or why `label` is not NAME=VALUE, as CLI11 asks of a check.
std::string CheckLabel(const std::string& label) {
  const std::string name = label.substr(0, label.find('='));
  const auto may_be_in = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  if (name.size() < label.size() && !name.empty() && !absl::ascii_isdigit(name[0]) &&
      std::all_of(name.begin(), name.end(), may_be_in)) {
    return "";
  }
  return absl::StrCat("'", label, "' is not NAME=VALUE, with a name of letters, digits and _");
}

// NAME="VALUE", as the exposition format writes a label.
std::string Written(const std::string& label) {
  const size_t equals = label.find('=');
  return absl::StrCat(label.substr(0, equals), "=\"",
                      absl::StrReplaceAll(label.substr(equals + 1),
                                          {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                      "\"");
}

// `text` with `labels` at every sample. INVALID_ARGUMENT: a sample has such a label already.
absl::StatusOr<std::string> Labelled(const std::string& text,
                                     const std::vector<std::string>& labels) {
  if (labels.empty()) return text;
  std::vector<std::string> written;
  for (const std::string& label : labels) written.push_back(Written(label));
  const std::string added = absl::StrJoin(written, ",");
  std::string labelled;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const size_t name_end = line.find_first_of("{ ");
    if (line[0] == '#' || name_end == absl::string_view::npos) {
      absl::StrAppend(&labelled, line, "\n");
      continue;
    }
    const absl::string_view name = line.substr(0, name_end), rest = line.substr(name_end);
    if (rest[0] == ' ') {
      absl::StrAppend(&labelled, name, "{", added, "}", rest, "\n");
      continue;
    }
    for (const std::string& label : labels) {
      const std::string has = absl::StrCat(label.substr(0, label.find('=')), "=\"");
      if (!absl::StrContains(rest, absl::StrCat("{", has)) &&
          !absl::StrContains(rest, absl::StrCat(",", has))) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("--label ", label, ": ", name, " has a label of that name: take another"));
    }
    absl::StrAppend(&labelled, name, "{", added, ",", rest.substr(1), "\n");
  }
  return labelled;
}

absl::StatusOr<std::string> Fetch(const Metrics& metrics, CommandContext& context) {
  const auto stub = v1::MetricsService::NewStub(context.channels->Connect(metrics.address));
  grpc::ClientContext call;
  call.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(metrics.wait_seconds)));
  const auto interruptible = context.interrupt->Set([&call] { call.TryCancel(); });
  v1::GetMetricsResponse response;
  const absl::Status status = FromGrpc(stub->GetMetrics(&call, {}, &response));
  if (status.ok()) return response.text();
  if (absl::IsUnimplemented(status)) {
    return absl::UnimplementedError(absl::StrCat(
        metrics.address, " serves no metrics; expected a tessera-master, a tessera-ps or a ",
        "tessera-worker with --listen, of this version"));
  }
  if (absl::IsCancelled(status)) return absl::CancelledError("interrupted");
  return WithContext(status, absl::StrCat("no metrics from ", metrics.address));
}

}  // namespace

void AddMetrics(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("metrics", "Print what a process counts and measures");
  const auto metrics = std::make_shared<Metrics>();
  command
      ->add_option("ADDRESS", metrics->address,
                   "HOST:PORT of a master, a ps, or a worker that was given --listen")
      ->check(ServerAddresses())
      ->required();
  command
      ->add_option("--wait", metrics->wait_seconds,
                   "seconds that a server which was reached may take to answer")
      ->check(RealNumber(0.1, 1e6))
      ->capture_default_str();
  command
      ->add_option("--label", metrics->labels,
                   "NAME=VALUE, a label for every sample, which tells this process from others")
      ->check(CheckLabel, "NAME=VALUE")
      ->allow_extra_args(false);
  context.AddSecurity(*command, metrics->address);
  command->footer(
      R"(The text is in Prometheus's exposition format 0.0.4; `tessera list --nodes` shows the addresses.

Examples:
  tessera metrics 127.0.0.1:7070
  tessera metrics 127.0.0.1:7071 | grep tessera_ps_pulled_keys
  tessera metrics 127.0.0.1:7071 --label node=ps-0 > ps-0.prom)");
  command->callback([metrics, &context] {
    absl::StatusOr<std::string> text = Fetch(*metrics, context);
    if (text.ok()) text = Labelled(*text, metrics->labels);
    if (!text.ok()) return context.Fail(text.status());
    context.Print(*text);
  });
}

}  // namespace tessera::client
