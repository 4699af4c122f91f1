#include "common/log.h"

#include <string>

#include "spdlog/sinks/stdout_color_sinks.h"

namespace tessera {

void InitLog(absl::string_view process, absl::string_view level) {
  auto logger = spdlog::stderr_color_mt(std::string(process));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n] %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  spdlog::set_default_logger(logger);
}

}  // namespace tessera
