#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/resident.h"
#include "common/version.h"

namespace tessera {
namespace {

absl::Duration SinceBoot() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

// When the kernel started this process, since the machine's boot; now if that cannot be read.
absl::Duration StartedAfterBoot() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // The program's name, in parentheses, may have spaces. The start is field 22, and the name 2
  // (proc(5)).
  constexpr size_t kStart = 22 - 2;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 1), ' ');
  int64_t ticks = 0;
  if (fields.size() <= kStart || !absl::SimpleAtoi(fields[kStart], &ticks)) return SinceBoot();
  return absl::Seconds(ticks) / sysconf(_SC_CLK_TCK);
}

double CpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

// 0 if that cannot be read, such as when there is no descriptor to read it with.
double OpenFileDescriptors() {
  std::error_code error;
  std::filesystem::directory_iterator at("/proc/self/fd", error);
  double count = 0;
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) ++count;
  return count;
}

double MostFileDescriptors() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(MetricsRegistry& registry,
                                                                 const std::string& process,
                                                                 const Security* security) {
  registry
      .AddGauge("tessera_build_info", "Always 1; the labels say which build this is.",
                {{"process", process},
                 {"version", kVersion},
                 {"protocol", absl::StrCat(kProtocolVersion)}})
      .Set(1);
  const absl::Duration start = StartedAfterBoot();
  // Prometheus's own client libraries use the names without a prefix.
  registry
      .AddGauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
      .Set(absl::ToDoubleSeconds(absl::Now() - (SinceBoot() - start) - absl::UnixEpoch()));
  return registry.AddCollector([start, security](MetricSamples& samples) {
    samples.AddGauge("process_resident_memory_bytes", "Bytes of the process in memory.", {},
                     static_cast<double>(ResidentBytes()));
    samples.AddCounter("process_cpu_seconds_total", "Seconds of processors that the process took.",
                       {}, CpuSeconds());
    samples.AddGauge("process_open_fds", "File descriptors that the process has open.", {},
                     OpenFileDescriptors());
    samples.AddGauge("process_max_fds", "File descriptors that the process may have open.", {},
                     MostFileDescriptors());
    samples.AddGauge("tessera_process_uptime_seconds", "Seconds since the process started.", {},
                     absl::ToDoubleSeconds(SinceBoot() - start));
    if (security == nullptr) return;
    samples.AddGauge("tessera_process_certificate_seconds",
                     "Seconds until the first of the process's certificates expires.", {},
                     absl::ToDoubleSeconds(security->certificates_until() - absl::Now()));
  });
}

}  // namespace tessera
