#include "absl/strings/str_cat.h"
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
};

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
  context.AddSecurity(*command, metrics->address);
  command->footer(
      R"(The text is in Prometheus's exposition format 0.0.4; `tessera list --nodes` shows the addresses.

Examples:
  tessera metrics 127.0.0.1:7070
  tessera metrics 127.0.0.1:7071 | grep tessera_ps_pulled_keys)");
  command->callback([metrics, &context] {
    const absl::StatusOr<std::string> text = Fetch(*metrics, context);
    if (!text.ok()) return context.Fail(text.status());
    context.Print(*text);
  });
}

}  // namespace tessera::client
