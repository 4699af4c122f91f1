#include <string>

#include "absl/strings/strip.h"
#include "common/mutex_checks.h"
#include "tests/bench/bench.h"

// Usage: [--short] [--work_folder=FOLDER] [--python=PROGRAM] [any option of Google Benchmark]
int main(int argc, char** argv) {
  tessera::EndMutexChecks();
  tessera::bench::Options options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--short") {
      options.short_run = true;
    } else if (absl::ConsumePrefix(&argument, "--work_folder=")) {
      options.work_folder = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--python=")) {
      options.python = std::string(argument);
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tessera::bench::RegisterBenchmarks(options);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
