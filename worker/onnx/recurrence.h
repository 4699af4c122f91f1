#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/onnx/read.h"

namespace tessera::worker {

// What ONNX's GRU, LSTM and RNN have in common: over x [batch, places, n] forward, backward, or
// both. Borrows the reader.
class OnnxRecurrence {
 public:
  // How the places are walked: weights have the directions one after another.
  struct Direction {
    size_t number = 0;
    bool backward = false;
  };
  // `gates` of a unit; `activations` of a direction as ONNX would list them, any where empty; of
  // the node's inputs from 5 on the first `states` are where it begins.
  static absl::StatusOr<OnnxRecurrence> Read(OnnxNodeReader& r, int64_t gates,
                                             const std::vector<std::string>& activations,
                                             size_t states);

  const std::vector<Direction>& directions() const { return directions_; }
  int64_t width() const { return r_.shape(x_).last(); }
  int64_t gates() const { return gates_; }
  int64_t places() const { return places_; }
  int64_t units() const { return units_; }
  bool begins_at_zero() const { return begins_at_zero_; }

  // x as the direction comes to its places.
  Tensor Walked(const Direction& direction) const { return direction.backward ? Turned(x_) : x_; }
  // Parameter `name` of a layer: of input i, which has `size` numbers a direction, `count` from
  // `begin` on of the direction's.
  absl::StatusOr<OnnxNodeReader::Weight> WeightOf(const Direction& direction,
                                                  const std::string& name, size_t i, int64_t size,
                                                  int64_t begin, int64_t count) const;
  // One place of states [batch, places, n], as [batch, n].
  Tensor Place(Tensor states, int64_t place) const;
  // Where the direction begins, [batch, units]: that of input 5 + `state`.
  absl::StatusOr<Tensor> First(const Direction& direction, size_t state) const;

  // ONNX's output 0, of each direction's states [batch, places, units], as it came to the places.
  void SetAll(const std::vector<Tensor>& states);
  // Another output, of each direction's state [batch, units].
  void SetOne(const std::vector<Tensor>& states, int output);

  // Layer by layer, where it is no op of ours. `cell` computes the states [batch, units] after a
  // place, of which the first is what the node gives, from those before and from what the
  // direction's weights make of x there, [batch, gates * units].
  using Cell = std::function<absl::StatusOr<std::vector<Tensor>>(
      const Direction& direction, Tensor x, const std::vector<Tensor>& states)>;
  absl::Status SetUnrolled(const Cell& cell);
  // What the recurrent weights make of `x`, [batch, units], for gates `first` to `last`.
  absl::StatusOr<Tensor> Recurred(const Direction& direction, Tensor x, int64_t first,
                                  int64_t last) const {
    return Product(direction, /*i=*/2, x, first, last);
  }

 private:
  explicit OnnxRecurrence(OnnxNodeReader& r) : r_(r) {}

  absl::StatusOr<Tensor> Product(const Direction& direction, size_t i, Tensor x, int64_t first,
                                 int64_t last) const;
  // The last place first.
  Tensor Turned(Tensor x) const;
  Tensor Joined(const std::vector<Tensor>& parts, double axis) const;

  OnnxNodeReader& r_;
  bool batch_first_ = false;
  bool begins_at_zero_ = true;
  std::vector<Direction> directions_;
  Tensor x_;
  int64_t gates_ = 0;
  int64_t places_ = 0;
  int64_t units_ = 0;
  size_t states_ = 0;
};

}  // namespace tessera::worker
