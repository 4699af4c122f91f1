// The command `tessera`: seams, commands, a clean stop.
#include <string>
#include <vector>

#include "client/commands/tessera_app.h"
#include "common/log.h"
#include "common/mutex_checks.h"
#include "common/process/stop_signal.h"
#include "common/rpc/channels.h"
#include "local/check.h"
#include "local/commands/local_commands.h"

int main(int argc, char** argv) {
  tessera::StopSignal stop;
  tessera::EndMutexChecks();
  tessera::InitLog("tessera", "warning");
  const std::unique_ptr<tessera::Channels> channels = tessera::NewNetworkChannels();
  tessera::client::InterruptHandler interrupt;
  stop.OnStop([&interrupt] { interrupt.Fire(); });
  tessera::client::CommandContext context;
  context.channels = channels.get();
  context.interrupt = &interrupt;
  context.check_model = tessera::local::CheckModel;
  const auto app = tessera::client::NewTesseraApp(
      context,
      {tessera::local::AddLocal, tessera::local::AddCheck, tessera::local::AddPredict,
       tessera::local::AddEvaluate, tessera::local::AddExport, tessera::local::AddDevices});
  return tessera::client::RunTessera(*app, context,
                                     std::vector<std::string>(argv + 1, argv + argc));
}
