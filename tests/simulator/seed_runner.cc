#include "tests/simulator/seed_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace tessera::simulator {
namespace {

// One line.
std::string ToLine(const Outcome& outcome) {
  return absl::StrCat(
      outcome.events, " ", outcome.kills, " ", outcome.moves, " ", outcome.suspensions, " ",
      outcome.rescales, " ", outcome.restarts, " ", outcome.set_aside, " ", outcome.lost_steps, " ",
      outcome.evicted_bytes, " ", outcome.evaluations, " ", outcome.compared, " ",
      absl::ToInt64Microseconds(outcome.took), " ", static_cast<int>(outcome.status.code()), " ",
      absl::CEscape(outcome.status.message()), "\n");
}

Outcome FromLine(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 13));
  Outcome outcome;
  int64_t took = 0;
  int code = 0;
  std::string message;
  bool sound = words.size() == 14;
  uint64_t* const numbers[] = {&outcome.events,      &outcome.kills,      &outcome.moves,
                               &outcome.suspensions, &outcome.rescales,   &outcome.restarts,
                               &outcome.set_aside,   &outcome.lost_steps, &outcome.evicted_bytes,
                               &outcome.evaluations, &outcome.compared};
  for (size_t i = 0; sound && i < std::size(numbers); ++i) {
    sound = absl::SimpleAtoi(words[i], numbers[i]);
  }
  if (!sound || !absl::SimpleAtoi(words[11], &took) || !absl::SimpleAtoi(words[12], &code) ||
      !absl::CUnescape(words[13], &message)) {
    outcome.status = absl::InternalError(absl::StrCat("no outcome: ", line));
    return outcome;
  }
  outcome.took = absl::Microseconds(took);
  if (code != 0) outcome.status = absl::Status(static_cast<absl::StatusCode>(code), message);
  return outcome;
}

void WriteAll(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
    if (written <= 0) return;  // whoever reads has died, and is asked no more
    at += static_cast<size_t>(written);
  }
}

}  // namespace

SeedRunner::SeedRunner(int processes, Simulate simulate, absl::Duration limit)
    : simulate_(std::move(simulate)), limit_(limit), processes_(processes) {
  ::signal(SIGPIPE, SIG_IGN);
  for (Process& process : processes_) Start(process);
}

SeedRunner::~SeedRunner() {
  for (Process& process : processes_) End(process);
}

void SeedRunner::Start(Process& process) {
  int down[2], up[2];
  if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0) {
    std::perror("simulate: no pipe");
    std::exit(1);
  }
  std::fflush(nullptr);
  process = {
      .pid = ::fork(), .to = down[1], .from = up[0], .seed = std::nullopt, .begin = {}, .text = ""};
  if (process.pid < 0) {
    std::perror("simulate: no process");
    std::exit(1);
  }
  if (process.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Else it would keep the others' pipes open.
    for (const Process& other : processes_) {
      if (other.to >= 0) ::close(other.to);
      if (other.from >= 0) ::close(other.from);
    }
    Serve(down[0], up[1]);
  }
  ::close(down[0]);
  ::close(up[1]);
}

void SeedRunner::Serve(int from, int to) const {
  uint64_t seed;
  while (::read(from, &seed, sizeof(seed)) == sizeof(seed)) WriteAll(to, ToLine(simulate_(seed)));
  ::_exit(0);
}

std::string SeedRunner::End(Process& process) {
  ::close(std::exchange(process.to, -1));
  ::close(std::exchange(process.from, -1));
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  return WIFSIGNALED(status)
             ? absl::StrCat("signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")")
             : absl::StrCat("exit code ", WEXITSTATUS(status));
}

void SeedRunner::Run(const std::function<std::optional<uint64_t>()>& next,
                     const std::function<void(uint64_t, const Outcome&)>& done) {
  size_t busy = 0;
  const auto give = [&](Process& process) {
    process.seed = next();
    if (!process.seed.has_value()) return;
    ++busy;
    process.begin = absl::Now();
    WriteAll(process.to, std::string(reinterpret_cast<const char*>(&*process.seed), 8));
  };
  const auto take = [&](Process& process, const Outcome& outcome) {
    --busy;
    done(*std::exchange(process.seed, std::nullopt), outcome);
  };
  const auto replace = [&](Process& process, absl::Status status) {
    Outcome outcome;
    outcome.status = std::move(status);
    take(process, outcome);
    Start(process);
    give(process);
  };
  for (Process& process : processes_) give(process);
  while (busy > 0) {
    std::vector<pollfd> polled;
    for (const Process& process : processes_) {
      polled.push_back(
          {.fd = process.seed.has_value() ? process.from : -1, .events = POLLIN, .revents = 0});
    }
    constexpr int kLookMs = 100;  // for those that take too long
    ::poll(polled.data(), polled.size(), kLookMs);
    for (size_t i = 0; i < processes_.size(); ++i) {
      Process& process = processes_[i];
      if (polled[i].revents == 0) {
        if (!process.seed.has_value() || absl::Now() - process.begin < limit_) continue;
        ::kill(process.pid, SIGKILL);
        End(process);
        replace(process, absl::DeadlineExceededError(absl::StrCat("the simulation did not end in ",
                                                                  absl::FormatDuration(limit_))));
        continue;
      }
      char bytes[4096];
      const ssize_t size = ::read(process.from, bytes, sizeof(bytes));
      if (size <= 0) {
        replace(process, absl::InternalError(absl::StrCat("the simulation died: ", End(process))));
        continue;
      }
      process.text.append(bytes, static_cast<size_t>(size));
      if (process.text.back() != '\n') continue;
      process.text.pop_back();
      take(process, FromLine(std::exchange(process.text, "")));
      give(process);
    }
  }
}

}  // namespace tessera::simulator
