#pragma once

#include <atomic>
#include <memory>

#include "client/commands/command.h"

// The commands below `tessera checkpoint`, one file each, and their shared parts. All work on this
// machine's disk, with one partition of each checkpoint in memory.
namespace tessera::client {

void AddCheckpointInspect(CLI::App& parent, CommandContext& context);
void AddCheckpointDiff(CLI::App& parent, CommandContext& context);
void AddCheckpointExpiry(CLI::App& parent, CommandContext& context);
void AddCheckpointPrune(CLI::App& parent, CommandContext& context);

// A KeepGoing (common/keep_going.h): CANCELLED once the user has interrupted the command.
class UntilInterrupted {
 public:
  explicit UntilInterrupted(CommandContext& context)
      : handler_(context.interrupt->Set([this] { interrupted_ = true; })) {}
  absl::Status operator()() const {
    return interrupted_ ? absl::CancelledError("interrupted") : absl::OkStatus();
  }

 private:
  std::atomic<bool> interrupted_ = false;
  const std::shared_ptr<void> handler_;
};

}  // namespace tessera::client
