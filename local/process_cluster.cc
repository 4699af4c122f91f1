#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/free_space.h"
#include "common/status_macros.h"
#include "local/child_process.h"
#include "local/cluster.h"
#include "local/restart_policy.h"

namespace tessera::local {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr absl::Duration kTermination = absl::Seconds(8);
constexpr absl::Duration kToldAgain = absl::Milliseconds(500);
constexpr int kTailLines = 5;

absl::StatusOr<std::string> ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return absl::InternalError("cannot read /proc/self/exe");
  const std::string text(path, static_cast<size_t>(size));
  return text.substr(0, text.rfind('/'));
}

// A process that the supervisor keeps alive.
struct Member {
  std::string name;
  std::vector<std::string> command;
  std::string log;
  RestartPolicy policy;
  std::optional<ChildProcess> process;
  uint64_t log_begin = 0;  // where the output of the present, or last, process begins
  absl::Duration start_at =
      absl::ZeroDuration();  // when it is to be started, while it does not run
};

class ProcessCluster final : public Cluster {
 public:
  ProcessCluster(ClusterOptions options, std::string master_address, std::vector<Member> members)
      : options_(std::move(options)),
        master_address_(std::move(master_address)),
        channels_(NewNetworkChannels()),
        members_(std::move(members)) {
    // The supervisor starts all children: the kernel kills them when the thread that started them
    // ends.
    supervisor_ = std::thread([this] { Supervise(); });
  }
  ~ProcessCluster() override { Stop(); }

  const std::string& master_address() const override { return master_address_; }
  Channels& channels() override { return *channels_; }

  void Stop() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    absl::MutexLock lock(&join_mu_);
    if (supervisor_.joinable()) supervisor_.join();
  }

 private:
  void Supervise() ABSL_LOCKS_EXCLUDED(mu_) {
    while (!WaitForStop(kLook)) {
      for (Member& member : members_) {
        const absl::Status status = Look(member);
        if (status.ok()) continue;
        if (options_.on_failure) options_.on_failure(status);
        WaitForStop(absl::InfiniteDuration());
        break;
      }
    }
    EndAll();
  }

  bool WaitForStop(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&stopping_), limit);
  }

  // Starts the member if it is time, and notices its death. An error: the member cannot be kept
  // alive.
  absl::Status Look(Member& member) {
    const absl::Duration now = SystemClock().Monotonic();
    if (!member.process.has_value()) {
      if (now < member.start_at) return absl::OkStatus();
      member.log_begin = FileBytes(member.log);
      absl::StatusOr<ChildProcess> process = ChildProcess::Start(member.command, member.log);
      if (absl::IsUnavailable(process.status())) {
        return StartAgain(member, absl::StrCat(member.name, ": ", process.status().message()), "");
      }
      TESSERA_RETURN_IF_ERROR(process.status());
      member.process.emplace(*std::move(process));
      return absl::OkStatus();
    }
    const std::optional<Death> death = member.process->Poll();
    if (!death.has_value()) return absl::OkStatus();
    const pid_t pid = member.process->pid();
    member.process.reset();
    const std::string what = absl::StrCat(member.name, " (pid ", pid, ") ", death->ToString());
    const std::string tail = Tail(member.log, member.log_begin, kTailLines);
    const std::string folder = options_.work_folder + "/logs";
    const std::string log = absl::StrCat(
        "; its log ", member.log,
        !tail.empty() ? absl::StrCat(" ends:\n    ", absl::StrReplaceAll(tail, {{"\n", "\n    "}}))
        : IsFull(folder) ? absl::StrCat(" is empty: ", NoRoomIn(folder))
                         : " is empty");
    // Exit codes 1 to 127 say that another try is of no use.
    if (death->signal == 0 && death->code >= 1 && death->code <= 127) {
      return absl::FailedPreconditionError(absl::StrCat(what, log));
    }
    return StartAgain(member, what, log);
  }

  // After a wait. FAILED_PRECONDITION: too often.
  absl::Status StartAgain(Member& member, const std::string& what, const std::string& log) {
    const absl::Duration now = SystemClock().Monotonic();
    const std::optional<absl::Duration> wait = member.policy.Died(now);
    if (!wait.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat(what, ", the ", RestartPolicy::kMaxDeaths, "th time in ",
                       absl::FormatDuration(RestartPolicy::kWithin), "; giving up", log));
    }
    member.start_at = now + *wait;
    if (options_.say) {
      options_.say(absl::StrCat(what, "; starting it again in ",
                                absl::FormatDuration(absl::Trunc(*wait, absl::Milliseconds(10))),
                                log));
    }
    return absl::OkStatus();
  }

  // Ends workers first, then ps, the master last, so that each ends before those that it calls.
  void EndAll() {
    for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
      if (member->process.has_value()) member->process->Send(SIGTERM);
    }
    const absl::Duration begin = SystemClock().Monotonic();
    const absl::Duration deadline = begin + kTermination;
    bool told_again = false;
    const auto running = [](Member& member) {
      return member.process.has_value() && !member.process->Poll().has_value();
    };
    while (std::any_of(members_.begin(), members_.end(), running) &&
           SystemClock().Monotonic() < deadline) {
      absl::SleepFor(absl::Milliseconds(10));
      if (told_again || SystemClock().Monotonic() < begin + kToldAgain) continue;
      // A ps that a job uses waits for the master, which is gone; a second SIGTERM ends the ps.
      told_again = true;
      for (Member& member : members_) {
        if (absl::StartsWith(member.name, "ps-") && running(member)) member.process->Send(SIGTERM);
      }
    }
    for (Member& member : members_) member.process.reset();  // kills what still runs
  }

  const ClusterOptions options_;
  const std::string master_address_;
  const std::unique_ptr<Channels> channels_;

  std::vector<Member> members_;  // used only by the supervisor thread

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Mutex join_mu_;
  std::thread supervisor_ ABSL_GUARDED_BY(join_mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> StartProcessCluster(ClusterOptions options) {
  std::string programs = options.program_folder;
  if (programs.empty()) {
    TESSERA_ASSIGN_OR_RETURN(programs, ProgramFolder());
  }
  // Only the master needs a fixed port; a ps tells its address when it joins.
  TESSERA_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::string master = absl::StrCat("127.0.0.1:", port);
  const auto folder = [&](const std::string& name) {
    return absl::StrCat(options.work_folder, "/", name);
  };
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(folder("logs")));
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(options.checkpoint_root));

  std::vector<Member> members;
  const auto add = [&](const std::string& name, const std::string& program,
                       std::vector<std::string> flags) {
    flags.insert(flags.begin(), absl::StrCat(programs, "/", program));
    members.push_back({.name = name,
                       .command = std::move(flags),
                       .log = absl::StrCat(folder("logs"), "/", name, ".log"),
                       .policy = RestartPolicy({.seed = static_cast<uint64_t>(members.size())}),
                       .process = {}});
  };
  add("master", "tessera-master",
      {"--listen", master, "--data-dir", folder("master"), "--checkpoint-root",
       options.checkpoint_root});
  const std::string share_memory =
      absl::StrCat("--shared-memory=", options.share_memory ? "true" : "false");
  for (int i = 0; i < options.ps; ++i) {
    const std::string name = absl::StrCat("ps-", i);
    add(name, "tessera-ps",
        {"--listen", "127.0.0.1:0", "--master", master, "--name", name, "--data-dir", folder(name),
         "--checkpoint-root", options.checkpoint_root, share_memory});
  }
  for (int i = 0; i < options.workers; ++i) {
    const std::string name = absl::StrCat("worker-", i);
    std::vector<std::string> flags = {"--master",      master,
                                      "--name",        name,
                                      "--data-root",   options.data_root,
                                      "--scratch-dir", folder(name),
                                      "--output-root", options.output_root,
                                      "--threads",     absl::StrCat(options.compute_threads),
                                      "--device",      options.device,
                                      share_memory};
    if (options.data_cache_bytes > 0) {
      flags.insert(flags.end(), {"--data-cache", absl::StrCat(options.data_cache_bytes)});
    }
    if (options.workers_serve) flags.insert(flags.end(), {"--listen", "127.0.0.1:0"});
    add(name, "tessera-worker", std::move(flags));
  }
  for (const Member& member : members) {
    if (access(member.command[0].c_str(), X_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat(member.command[0],
                       " is missing; it is built beside this program: build the targets "
                       "tessera-master, tessera-ps and tessera-worker"));
    }
  }
  return std::make_unique<ProcessCluster>(std::move(options), master, std::move(members));
}

}  // namespace tessera::local
