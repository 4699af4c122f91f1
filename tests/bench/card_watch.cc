#include "tests/bench/card_watch.h"

#include <dlfcn.h>

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tessera::bench {

// Of the library that comes with a driver, as its nvml.h declares it; a machine without a card has
// none to link with.
struct CardWatch::Nvml {
  struct Utilization {
    unsigned gpu, memory;  // percent
  };
  using Card = void*;

  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*card_of)(unsigned, Card*) = nullptr;
  int (*utilization)(Card, Utilization*) = nullptr;
  Card card = nullptr;

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

absl::StatusOr<std::unique_ptr<CardWatch>> CardWatch::Start() {
  auto nvml = std::make_unique<Nvml>();
  nvml->library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml->library == nullptr) return absl::UnavailableError(::dlerror());
  nvml->Find("nvmlInit_v2", &nvml->init);
  nvml->Find("nvmlShutdown", &nvml->shutdown);
  nvml->Find("nvmlDeviceGetHandleByIndex_v2", &nvml->card_of);
  nvml->Find("nvmlDeviceGetUtilizationRates", &nvml->utilization);
  if (nvml->init == nullptr || nvml->shutdown == nullptr || nvml->card_of == nullptr ||
      nvml->utilization == nullptr) {
    return absl::UnavailableError("libnvidia-ml.so.1 lacks a function of NVML");
  }
  if (const int code = nvml->init(); code != 0) {
    return absl::UnavailableError(absl::StrCat("NVML does not begin: error ", code));
  }
  if (const int code = nvml->card_of(0, &nvml->card); code != 0) {
    nvml->shutdown();
    return absl::UnavailableError(absl::StrCat("NVML knows no card 0: error ", code));
  }
  return std::unique_ptr<CardWatch>(new CardWatch(std::move(nvml)));
}

CardWatch::CardWatch(std::unique_ptr<Nvml> nvml)
    : nvml_(std::move(nvml)), thread_([this] { Work(); }) {}

CardWatch::~CardWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
  nvml_->shutdown();
}

void CardWatch::Work() {
  constexpr absl::Duration kLook = absl::Milliseconds(50);
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), kLook)) {
    Nvml::Utilization now = {};
    if (nvml_->utilization(nvml_->card, &now) == 0) shares_.push_back(now.gpu / 100.0);
  }
}

double CardWatch::BusyShare() {
  absl::MutexLock lock(&mu_);
  const std::vector<double> shares = std::exchange(shares_, {});
  if (shares.empty()) return 0;
  return std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
}

}  // namespace tessera::bench
