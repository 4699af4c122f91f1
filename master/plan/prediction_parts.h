#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The records of a job that predicts, in even parts: one for each rank, in the order in which the
// ranks ask. A pure core. Not thread-safe.
class PredictionParts {
 public:
  explicit PredictionParts(uint32_t parts) : parts_(parts) {}

  bool handed_out() const { return handed_out_ == parts_; }  // all of them
  // The next part of the files' records. Not all are handed out. It is written to `output` if it is
  // the only one, else to `output`-PART-of-PARTS.
  v1::Predict Next(const std::vector<v1::FileRecords>& files, const std::string& output);
  void PartDone() { ++done_; }
  // Every part is done.
  bool done() const { return done_ >= parts_; }

 private:
  const uint32_t parts_;
  uint32_t handed_out_ = 0;
  uint32_t done_ = 0;
};

}  // namespace tessera::master
