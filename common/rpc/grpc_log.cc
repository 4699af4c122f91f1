#include "common/rpc/grpc_log.h"

#include <string>

#include "absl/strings/match.h"
#include "common/log.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"

namespace tessera {
namespace {

void Log(gpr_log_func_args* args) {
  const bool dying = absl::StartsWith(args->message, "assertion failed");
  spdlog::log(dying ? spdlog::level::critical : spdlog::level::debug, "gRPC: {}", args->message);
}

// Protobuf complains about messages, such as strings that are not UTF-8.
void LogProtobuf(google::protobuf::LogLevel level, const char*, int, const std::string& message) {
  const bool dying = level == google::protobuf::LOGLEVEL_FATAL;
  spdlog::log(dying ? spdlog::level::critical : spdlog::level::debug, "protobuf: {}", message);
}

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(Log);
  google::protobuf::SetLogHandler(LogProtobuf);
}

}  // namespace tessera
