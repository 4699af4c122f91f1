#pragma once

#include "client/commands/command.h"

namespace tessera::client {

// Each adds one command to the program; the command runs within app.parse().
void AddSubmit(CLI::App& app, CommandContext& context);
void AddWatch(CLI::App& app, CommandContext& context);
void AddList(CLI::App& app, CommandContext& context);
void AddDescribe(CLI::App& app, CommandContext& context);
void AddCancel(CLI::App& app, CommandContext& context);
void AddSuspend(CLI::App& app, CommandContext& context);
void AddResume(CLI::App& app, CommandContext& context);
void AddScale(CLI::App& app, CommandContext& context);
void AddDrain(CLI::App& app, CommandContext& context);
void AddBalance(CLI::App& app, CommandContext& context);
void AddCheckpoint(CLI::App& app, CommandContext& context);
void AddPlot(CLI::App& app, CommandContext& context);
void AddMetrics(CLI::App& app, CommandContext& context);
void AddData(CLI::App& app, CommandContext& context);
// A command below `data`; AddData calls this.
void AddDataBehaviour(CLI::App& parent, CommandContext& context);
void AddVersion(CLI::App& app, CommandContext& context);

}  // namespace tessera::client
