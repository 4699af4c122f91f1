#include "worker/device.h"

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "cuda/devices.h"
#include "worker/dense/bfloat16_product.h"

namespace tessera::worker {

absl::StatusOr<std::string> ChooseDevice(absl::string_view wish) {
  if (wish == "cpu") return std::string("cpu");
  const auto devices = cuda::ListDevices();
  if (wish.empty() || wish == "auto") {
    SPDLOG_INFO("device auto: cpu ({})", devices.ok() ? "this version computes on the CPU only"
                                                      : std::string(devices.status().message()));
    return std::string("cpu");
  }
  TESSERA_RETURN_IF_ERROR(WithContext(devices.status(), absl::StrCat("train.device: ", wish)));
  return absl::FailedPreconditionError(
      absl::StrCat("train.device: ", wish, ": ", devices->front().name,
                   " is there, but this version computes on the CPU only; set it to cpu or auto"));
}

absl::Status CheckPrecision(v1::TrainSpec::Precision wish) {
  if (wish != v1::TrainSpec::BFLOAT16 || HasBfloat16Products()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "train.precision: bfloat16: this processor has no products of bfloat16 numbers (AVX-512 BF16 "
      "or AMX); set it to float32");
}

}  // namespace tessera::worker
