#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/commands/command.h"

namespace tessera::client {

// The program `tessera` with the commands of this room; `more` adds those of other rooms. `context`
// outlives the result.
std::unique_ptr<CLI::App> NewTesseraApp(
    CommandContext& context,
    const std::vector<std::function<void(CLI::App&, CommandContext&)>>& more);

// Parses and runs one command line, without the program's name; returns the exit code.
int RunTessera(CLI::App& app, CommandContext& context, std::vector<std::string> arguments);

}  // namespace tessera::client
