// The main function of every test program. A test that has run for too long ends the program: its
// name and where each thread waits go to standard error, so that what hangs once in many runs is
// known from that run.
#include <execinfo.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

namespace {

// In seconds: what TESSERA_TEST_SECONDS says, which under ctest is less than its own limit; else
// several times the longest of tests/sanitize --short (81 s on a busy machine).
int Longest() {
  const char* const given = std::getenv("TESSERA_TEST_SECONDS");
  const int seconds = given == nullptr ? 0 : std::atoi(given);
  return seconds > 0 ? seconds : 600;
}
const int longest = Longest();
// A death test's child ends before its parent, which then says what the child said.
constexpr int kChildEndsBefore = 30;

// Seconds that the test, or what the program does before the first and after the last, may still
// run; counted, not read from a clock, as some tests set the clock.
std::atomic<int> left = longest;

// Of the thread that it interrupts. (ThreadSanitizer keeps signals from threads that wait: of those
// there is no stack.)
void PrintStack(int) {
  void* frames[64];
  const int count = ::backtrace(frames, std::size(frames));
  constexpr char kTitle[] = "--- a thread of it (addr2line -Cfe PROGRAM ADDRESS):\n";
  (void)!::write(STDERR_FILENO, kTitle, sizeof kTitle - 1);
  ::backtrace_symbols_fd(frames, count, STDERR_FILENO);
}

[[noreturn]] void EndProgram() {
  // Whatever becomes of the rest: it needs memory, which a thread may hold up.
  ::alarm(30);
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::fprintf(stderr, "\nhangs: %s.%s\n", test == nullptr ? "" : test->test_suite_name(),
               test == nullptr ? "(no test)" : test->name());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(entry.path().filename().string());
    if (thread == ::gettid()) continue;
    ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2);
    // One after the other, so that their lines do not mix.
    ::usleep(20'000);
  }
  std::abort();
}

void* EndWhatHangs(void*) {
  while (true) {
    ::sleep(1);
    if (--left == 0) EndProgram();
  }
}

class Deadline : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { left = longest; }
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).find("internal_run_death_test") != std::string::npos) {
      left = std::max(1, longest - kChildEndsBefore);
    }
  }
  // Loads what it needs, which a signal's handler may not.
  void* frame;
  ::backtrace(&frame, 1);
  ::signal(SIGUSR2, PrintStack);
  // Signals that tests send are for other threads.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, EndWhatHangs, nullptr) != 0) std::perror("pthread_create");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Deadline);
  return RUN_ALL_TESTS();
}
