#include "worker/device.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "cuda/devices.h"
#include "worker/dense/executor.h"
#include "worker/dense/prepared_product.h"

namespace tessera::worker {

namespace {

bool IsAuto(absl::string_view wish) { return wish.empty() || wish == "auto"; }

// N of "cuda:N"; "cuda" is the first.
absl::StatusOr<int> FindCard(absl::string_view wish) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<cuda::Device> cards, cuda::ListDevices());
  int index = 0;
  if (absl::ConsumePrefix(&wish, "cuda:") && !absl::SimpleAtoi(wish, &index)) {
    return absl::FailedPreconditionError(absl::StrCat("\"", wish, "\" is no number of a card"));
  }
  if (index >= 0 && static_cast<size_t>(index) < cards.size()) return index;
  return absl::FailedPreconditionError(
      absl::StrCat("this machine's cards are cuda:0 to cuda:", cards.size() - 1));
}

absl::StatusOr<std::unique_ptr<cuda::Stream>> Open(absl::string_view wish, const Model& model) {
  std::unique_ptr<cuda::Stream> stream;
  if (wish == "emulated") {
    stream = cuda::Stream::Emulated();
    if (stream == nullptr) return absl::FailedPreconditionError("this build has real ones");
  } else {
    TESSERA_ASSIGN_OR_RETURN(const int card, FindCard(wish));
    TESSERA_ASSIGN_OR_RETURN(stream, cuda::Stream::New(card));
  }
  TESSERA_RETURN_IF_ERROR(CheckRunsOnCuda(model));
  return stream;
}

}  // namespace

absl::Status CheckDevice(absl::string_view wish) {
  if (IsAuto(wish) || wish == "cpu" || wish == "emulated") return absl::OkStatus();
  return WithContext(FindCard(wish).status(), absl::StrCat("device ", wish));
}

absl::StatusOr<std::unique_ptr<cuda::Stream>> OpenDevice(absl::string_view wish,
                                                         const Model& model) {
  if (wish == "cpu") return nullptr;
  absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = Open(IsAuto(wish) ? "cuda" : wish, model);
  if (IsAuto(wish)) {
    if (stream.ok()) {
      SPDLOG_INFO("device auto: cuda:0");
    } else {
      SPDLOG_INFO("device auto: cpu ({})", std::string(stream.status().message()));
      return nullptr;
    }
  }
  TESSERA_RETURN_IF_ERROR(WithContext(stream.status(), absl::StrCat("train.device: ", wish)));
  return stream;
}

absl::Status CheckPrecision(v1::TrainSpec::Precision wish) {
  if (wish == v1::TrainSpec::TF32 || wish == v1::TrainSpec::FLOAT16) {
    return absl::FailedPreconditionError(absl::StrCat(
        "train.precision: ", wish == v1::TrainSpec::TF32 ? "tf32" : "float16",
        " is of a card's products, and this worker computes on the CPU; set it to float32, or "
        "train.device to cuda"));
  }
  if (wish != v1::TrainSpec::BFLOAT16 || HasBfloat16Products()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "train.precision: bfloat16: this processor has no products of bfloat16 numbers (AVX-512 BF16 "
      "or AMX); set it to float32");
}

}  // namespace tessera::worker
