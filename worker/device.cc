#include "worker/device.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "cuda/compute_capability.h"
#include "cuda/devices.h"
#include "worker/dense/executor.h"
#include "worker/dense/prepared_product.h"

namespace tessera::worker {

namespace {

bool IsAuto(absl::string_view wish) { return wish.empty() || wish == "auto"; }

// The cards that "cuda" or "cuda:N" allows: all, or card N.
absl::StatusOr<std::vector<cuda::Device>> FindCards(absl::string_view wish) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<cuda::Device> cards, cuda::ListDevices());
  int index = 0;
  if (!absl::ConsumePrefix(&wish, "cuda:")) return cuda::WithComputeCapability(cards);
  if (!absl::SimpleAtoi(wish, &index)) {
    return absl::FailedPreconditionError(absl::StrCat("\"", wish, "\" is no number of a card"));
  }
  if (index >= 0 && static_cast<size_t>(index) < cards.size()) {
    return cuda::WithComputeCapability({cards[static_cast<size_t>(index)]});
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this machine's cards are cuda:0 to cuda:", cards.size() - 1));
}

absl::StatusOr<OpenedDevice> Open(absl::string_view wish, const Model& model) {
  OpenedDevice opened;
  if (absl::ConsumePrefix(&wish, "emulated")) {
    uint64_t bytes = 0;
    if (!wish.empty() && !(absl::ConsumePrefix(&wish, ":") && absl::SimpleAtoi(wish, &bytes))) {
      return absl::FailedPreconditionError("expected emulated or emulated:BYTES");
    }
    opened.stream = cuda::Stream::Emulated(bytes);
    if (opened.stream == nullptr) return absl::FailedPreconditionError("this build uses CUDA");
  } else {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<cuda::Device> cards, FindCards(wish));
    size_t chosen = 0;
    if (cards.size() > 1) {
      std::vector<std::string> names;
      for (const cuda::Device& card : cards) names.push_back(card.bus_id);
      TESSERA_ASSIGN_OR_RETURN(opened.seat, CardSeat::Take(names));
      chosen = opened.seat->card();
    }
    absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = cuda::Stream::New(cards[chosen].index);
    // It was there a moment ago: "auto" is not to take the CPU for that.
    if (absl::IsFailedPrecondition(stream.status())) {
      return absl::UnavailableError(stream.status().message());
    }
    TESSERA_RETURN_IF_ERROR(stream.status());
    opened.stream = *std::move(stream);
    SPDLOG_INFO("computes on cuda:{}", cards[chosen].index);
  }
  TESSERA_RETURN_IF_ERROR(CheckRunsOnCuda(model));
  if (const absl::Status injected = Failpoint("worker.device.open"); !injected.ok()) {
    return absl::InternalError(injected.message());
  }
  return opened;
}

}  // namespace

absl::Status CheckDevice(absl::string_view wish) {
  if (IsAuto(wish) || wish == "cpu" || wish == "emulated") return absl::OkStatus();
  return WithContext(FindCards(wish).status(), absl::StrCat("device ", wish));
}

absl::StatusOr<OpenedDevice> OpenDevice(absl::string_view wish, const Model& model) {
  if (wish == "cpu") return OpenedDevice();
  absl::StatusOr<OpenedDevice> opened = Open(IsAuto(wish) ? "cuda" : wish, model);
  if (IsAuto(wish) && LeavesOnlyTheCpu(opened.status())) {
    SPDLOG_INFO("device auto: cpu ({})", std::string(opened.status().message()));
    return OpenedDevice();
  }
  TESSERA_RETURN_IF_ERROR(
      WithContext(opened.status(), absl::StrCat("train.device: ", IsAuto(wish) ? "auto" : wish)));
  return opened;
}

bool LeavesOnlyTheCpu(const absl::Status& opened) {
  return opened.code() == absl::StatusCode::kFailedPrecondition;
}

absl::Status CheckPrecision(v1::TrainSpec::Precision wish) {
  if (wish == v1::TrainSpec::TF32 || wish == v1::TrainSpec::FLOAT16) {
    return absl::FailedPreconditionError(absl::StrCat(
        "train.precision: ", wish == v1::TrainSpec::TF32 ? "tf32" : "float16",
        " needs a card, and this worker computes on the CPU; set it to float32, or train.device to "
        "cuda"));
  }
  if (wish != v1::TrainSpec::BFLOAT16 || HasBfloat16Products()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "train.precision: bfloat16: this processor has no instructions for products of bfloat16 "
      "numbers (AVX-512 BF16 or AMX); set it to float32");
}

}  // namespace tessera::worker
