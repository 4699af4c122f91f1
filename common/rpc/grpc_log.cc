#include "common/rpc/grpc_log.h"

#include "absl/strings/match.h"
#include "common/log.h"
#include "grpc/support/log.h"

namespace tessera {
namespace {

void Log(gpr_log_func_args* args) {
  const bool dying = absl::StartsWith(args->message, "assertion failed");
  spdlog::log(dying ? spdlog::level::critical : spdlog::level::debug, "gRPC: {}", args->message);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(Log); }

}  // namespace tessera
