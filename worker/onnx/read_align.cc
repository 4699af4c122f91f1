// Inputs of a node that meet element by element, brought into one order of axes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;
using Aligned = OnnxNodeReader::Aligned;

// The axes merged with the batch in one axis of ONNX: before and after it.
struct Beside {
  explicit Beside(const OnnxValue& value) {
    if (value.IsUnbatched()) return;
    const Axes& group = value.axes[value.batch_axis()];
    const auto batch = std::find(group.begin(), group.end(), 0);
    before.assign(group.begin(), batch);
    after.assign(batch + 1, group.end());
  }
  Axes before, after;
};

class Alignment {
 public:
  Alignment(OnnxNodeReader& r, int64_t free) : r_(r), free_(free) {}

  absl::StatusOr<Aligned> Make() {
    TESSERA_RETURN_IF_ERROR(FindFirst());
    TESSERA_RETURN_IF_ERROR(CheckBatches());
    const bool alike = Alike();
    alike ? KeepPlaces() : OrderPlaces();
    for (size_t i = 0; i < r_.inputs(); ++i) {
      Tensor& tensor = aligned_.tensors.emplace_back();
      if (r_.IsTensor(i)) tensor = alike ? r_.in(i).tensor : Placed(r_.in(i));
    }
    TESSERA_RETURN_IF_ERROR(CheckSizes());
    return std::move(aligned_);
  }

 private:
  absl::Status FindFirst() {
    for (size_t i = 0; i < r_.inputs(); ++i) {
      if (!r_.Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
      rank_ = std::max(rank_, r_.DimsOf(r_.in(i)).size());
      if (r_.in(i).HasBatch() && !r_.IsTensor(i)) TESSERA_RETURN_IF_ERROR(r_.TensorIn(i).status());
      const bool tells = first_ == nullptr || first_->IsUnbatched();
      if (tells && r_.IsTensor(i)) first_ = &r_.in(i);
    }
    if (first_ == nullptr) return absl::UnimplementedError("all its inputs are constants");
    // Behind all axes if no input has the batch.
    batch_axis_ = first_->batch_axis() + rank_ - first_->axes.size();
    return absl::OkStatus();
  }

  // All have it in the same place, with as much beside it; constants, and what is computed of
  // parameters alone, have nothing there.
  absl::Status CheckBatches() {
    if (first_->IsUnbatched()) return absl::OkStatus();
    const Beside beside(*first_);
    for (size_t i = 0; i < r_.inputs(); ++i) {
      const OnnxValue& value = r_.in(i);
      if (!r_.IsTensor(i) || value.IsUnbatched()) {
        const int64_t size = SizeOf(i, batch_axis_);
        if (size == 1 || size == BatchTimes(1)) continue;
        r_.TakeExample(i, batch_axis_ - (rank_ - r_.DimsOf(value).size()));
        if (r_.in(i).HasBatch()) TESSERA_RETURN_IF_ERROR(r_.TensorIn(i).status());
        if (SizeOf(i, batch_axis_) == BatchTimes(1)) continue;
        return absl::UnimplementedError(
            absl::StrCat("the batch meets a constant of ", size, " numbers: it has any size"));
      }
      const Beside other(value);
      if (value.batch_axis() + rank_ - value.axes.size() != batch_axis_ ||
          r_.SizeOf(value, other.before) != r_.SizeOf(*first_, beside.before) ||
          r_.SizeOf(value, other.after) != r_.SizeOf(*first_, beside.after)) {
        return absl::UnimplementedError(absl::StrCat(DimsText(r_.DimsOf(*first_)), " meets ",
                                                     DimsText(r_.DimsOf(value)),
                                                     ": that would mix samples"));
      }
    }
    return absl::OkStatus();
  }

  // Whether no axis has to be moved.
  bool Alike() const {
    size_t listed = 0;
    for (const Axes& group : first_->axes) listed += group.size();
    const size_t all = r_.shape(first_->tensor).rank() + (first_->IsUnbatched() ? 0 : 1);
    if (rank_ != first_->axes.size() || listed != all) return false;
    if (free_ >= 0 && first_->axes[static_cast<size_t>(free_)].size() != 1) return false;
    for (size_t i = 0; i < r_.inputs(); ++i) {
      const OnnxValue& value = r_.in(i);
      if (!r_.IsTensor(i)) {
        if (std::max(value.floats.size(), value.ints.size()) != 1) return false;
        continue;
      }
      const bool same_shape = r_.shape(value.tensor) == r_.shape(first_->tensor);
      if (value.axes != first_->axes || !(same_shape || free_ >= 0)) return false;
    }
    return true;
  }

  void KeepPlaces() {
    aligned_.axes = first_->axes;
    for (size_t a = 0; a < r_.shape(first_->tensor).rank(); ++a) {
      for (size_t k = 0; k < rank_; ++k) {
        const Axes& group = first_->axes[k];
        const bool has = std::count(group.begin(), group.end(), static_cast<int>(a) + 1) > 0;
        if (has) aligned_.places.push_back(static_cast<int>(k));
      }
    }
  }

  // ONNX's order, with the batch first.
  void OrderPlaces() {
    const Beside beside(*first_);
    const bool before = r_.SizeOf(*first_, beside.before) > 1;
    const bool after = r_.SizeOf(*first_, beside.after) > 1;
    for (size_t k = 0; k < rank_; ++k) {
      Axes& group = aligned_.axes.emplace_back();
      const auto place = [&] {
        aligned_.places.push_back(static_cast<int>(k));
        group.push_back(static_cast<int>(aligned_.places.size()));
      };
      const bool has_batch = k == batch_axis_;
      if (!has_batch || before) place();
      if (has_batch) group.push_back(0);
      // A tensor has an axis besides the batch.
      if (has_batch && (after || rank_ == 1)) place();
    }
  }

  // The value's tensor with its axes moved to the places.
  Tensor Placed(const OnnxValue& value) {
    const size_t missing = rank_ - value.axes.size();
    const Beside beside(value);
    std::vector<Axes> parts;
    bool before = r_.SizeOf(value, beside.before) > 1;
    for (const int place : aligned_.places) {
      const auto k = static_cast<size_t>(place);
      Axes& part = parts.emplace_back();
      if (k == batch_axis_) {
        part = std::exchange(before, false) ? beside.before : beside.after;
      } else if (k >= missing) {
        part = value.axes[k - missing];
      }
    }
    if (parts.empty()) return r_.Arranged(value, parts);  // one number
    // Axes of size 1 beside the batch join any other axis that need not be moved.
    const auto rank = static_cast<int>(r_.shape(value.tensor).rank());
    for (int a = 1; a <= rank; ++a) {
      const bool placed = std::any_of(parts.begin(), parts.end(), [a](const Axes& part) {
        return std::count(part.begin(), part.end(), a) > 0;
      });
      if (placed) continue;
      const auto later = [a](int axis) { return axis > a; };
      parts[0].insert(std::find_if(parts[0].begin(), parts[0].end(), later), a);
    }
    return r_.Arranged(value, parts);
  }

  // Sizes are equal or 1 in every place but the free one.
  absl::Status CheckSizes() {
    std::vector<int64_t> sizes(aligned_.places.size(), 1);
    for (size_t i = 0; i < r_.inputs(); ++i) {
      const Tensor tensor = aligned_.tensors[i];
      const bool one =
          tensor.index < 0 && std::max(r_.in(i).floats.size(), r_.in(i).ints.size()) == 1;
      for (size_t p = 0; p < sizes.size() && !one; ++p) {
        if (aligned_.places[p] == free_) continue;
        const auto place = static_cast<size_t>(aligned_.places[p]);
        const int64_t size =
            tensor.index >= 0 ? r_.shape(tensor).dim(p) : KnownSize(SizeOf(i, place));
        if (sizes[p] == 1) sizes[p] = size;
        if (size == 1 || size == sizes[p]) continue;
        return absl::InvalidArgumentError(absl::StrCat(DimsText(r_.DimsOf(*first_)), " meets ",
                                                       DimsText(r_.DimsOf(r_.in(i))),
                                                       "; expected sizes that are equal or 1"));
      }
    }
    return absl::OkStatus();
  }

  int64_t SizeOf(size_t i, size_t place) const {
    const std::vector<int64_t> dims = r_.DimsOf(r_.in(i));
    return place + dims.size() < rank_ ? 1 : dims[place + dims.size() - rank_];
  }

  OnnxNodeReader& r_;
  const int64_t free_;
  size_t rank_ = 0;  // of ONNX, the largest
  size_t batch_axis_ = 0;
  const OnnxValue* first_ = nullptr;
  Aligned aligned_;
};

}  // namespace

absl::StatusOr<Aligned> OnnxNodeReader::Align(int64_t free) {
  return Alignment(*this, free).Make();
}

}  // namespace tessera::worker
