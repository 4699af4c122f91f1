#pragma once

#include "client/commands/command.h"

namespace tessera::local {

// The commands that need a cluster or a model on this machine; see client/commands/commands.h.
void AddLocal(CLI::App& app, client::CommandContext& context);
void AddCheck(CLI::App& app, client::CommandContext& context);
void AddDevices(CLI::App& app, client::CommandContext& context);
void AddPredict(CLI::App& app, client::CommandContext& context);
void AddEvaluate(CLI::App& app, client::CommandContext& context);
void AddExport(CLI::App& app, client::CommandContext& context);

}  // namespace tessera::local
