#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/onnx/read.h"

namespace tessera::worker {

// Shared by ONNX's GRU, LSTM and RNN: walks x [batch, places, n] forward, backward or both. Borrows
// the reader.
class OnnxRecurrence {
 public:
  // A direction of the walk; weights hold the directions one after another.
  struct Direction {
    size_t number = 0;
    bool backward = false;
  };
  // `gates`: of a unit. `activations`: those of a direction that are allowed, as ONNX lists them;
  // empty: any. `states`: inputs 5, 6, ... of the node are the initial values of this many states.
  static absl::StatusOr<OnnxRecurrence> Read(OnnxNodeReader& r, int64_t gates,
                                             const std::vector<std::string>& activations,
                                             size_t states);

  const std::vector<Direction>& directions() const { return directions_; }
  int64_t width() const { return r_.shape(x_).last(); }
  int64_t gates() const { return gates_; }
  int64_t places() const { return places_; }
  int64_t units() const { return units_; }
  // Whether the dense graph's ops know it: it has a bias and begins at zeros, and lengths that
  // differ by sample are those of a walk forward.
  bool is_plain() const {
    const bool backward = directions_.back().backward;
    return r_.Has(3) && begins_at_zero_ && (!has_lengths() || !backward);
  }

  // x and, if they differ by sample, the lengths, [batch, 1]: what the dense graph's ops read.
  std::vector<Tensor> InputsOf(const Direction& direction) const {
    std::vector<Tensor> inputs = {Walked(direction)};
    if (has_lengths()) inputs.push_back(lengths_);
    return inputs;
  }
  // x with its places in the order of the direction.
  Tensor Walked(const Direction& direction) const { return direction.backward ? Turned(x_) : x_; }
  // Parameter `name` of a layer, from input i, which has `size` numbers for each direction: `count`
  // of the direction's numbers, from `begin` on.
  absl::StatusOr<OnnxNodeReader::Weight> WeightOf(const Direction& direction,
                                                  const std::string& name, size_t i, int64_t size,
                                                  int64_t begin, int64_t count) const;
  // The state of each sample's last place, [batch, n], of states [batch, places, n] in the order of
  // a walk forward, or without lengths of any.
  Tensor LastOf(Tensor states) const;
  // One place of states [batch, places, n], as [batch, n].
  Tensor Place(Tensor states, int64_t place) const;
  // The direction's initial state, [batch, units], from input 5 + `state`.
  absl::StatusOr<Tensor> First(const Direction& direction, size_t state) const;

  // Sets ONNX's output 0 from each direction's states [batch, places, units], in the order of its
  // walk.
  void SetAll(const std::vector<Tensor>& states);
  // Sets another output from each direction's state [batch, units].
  void SetOne(const std::vector<Tensor>& states, int output);

  // Builds the recurrence layer by layer, if the dense graph has no such op. `cell` computes the
  // states [batch, units] after a place (the first is the node's output) from the states before and
  // the product of the direction's weights and x there, [batch, gates * units].
  using Cell = std::function<absl::StatusOr<std::vector<Tensor>>(
      const Direction& direction, Tensor x, const std::vector<Tensor>& states)>;
  absl::Status SetUnrolled(const Cell& cell);
  // The product of the recurrent weights and `x` [batch, units], for gates `first` to `last`.
  absl::StatusOr<Tensor> Recurred(const Direction& direction, Tensor x, int64_t first,
                                  int64_t last) const {
    return Product(direction, /*i=*/2, x, first, last);
  }

 private:
  bool has_lengths() const { return lengths_.index >= 0; }
  explicit OnnxRecurrence(OnnxNodeReader& r) : r_(r) {}

  absl::StatusOr<Tensor> Product(const Direction& direction, size_t i, Tensor x, int64_t first,
                                 int64_t last) const;
  // `after` for samples whose length is above `place`, else `before`; by [batch, n].
  Tensor WithinLengths(int64_t place, Tensor after, Tensor before) const;
  // x with its places reversed.
  Tensor Turned(Tensor x) const;
  Tensor Joined(const std::vector<Tensor>& parts, double axis) const;

  OnnxNodeReader& r_;
  bool batch_first_ = false;
  bool begins_at_zero_ = true;
  std::vector<Direction> directions_;
  Tensor x_;
  Tensor lengths_;  // index -1: all samples have all places
  int64_t gates_ = 0;
  int64_t places_ = 0;
  int64_t units_ = 0;
  size_t states_ = 0;
};

}  // namespace tessera::worker
