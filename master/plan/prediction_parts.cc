#include "master/plan/prediction_parts.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/window.h"
#include "master/plan/evaluation_round.h"

namespace tessera::master {

v1::Predict PredictionParts::Next(const std::vector<v1::FileRecords>& files,
                                  const std::string& output) {
  const JoinedRanges all(AllRecords(files));
  const Part part = EvenPart(all.records(), handed_out_, parts_);
  v1::Predict predict;
  for (v1::RecordRange& range : all.Slice(part.begin, part.end)) {
    *predict.add_ranges() = std::move(range);
  }
  predict.set_output(parts_ == 1 ? output
                                 : absl::StrFormat("%s-%05d-of-%05d", output, handed_out_, parts_));
  ++handed_out_;
  return predict;
}

}  // namespace tessera::master
