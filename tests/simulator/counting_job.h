#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::simulator {

// What a worker of the simulator may do wrong, to see that it is caught.
enum class Mistake {
  kNone,
  kLosesPush,    // takes a push that was not answered for done
  kEmptiesPush,  // repeats a push without what it held
  kDoublesPush,  // adds a push that it had to repeat to the next one
  kStaleRows,    // computes from rows as it pulled them the time before
  kBlindScores,  // scores as if there were no rows
};

// A job whose result shows every sample that was lost, doubled or misplaced: a row's first number
// is how many samples held its key. The second depends on the order of all updates and on the rows
// that they were computed from, so that in `sync` mode its bits are those of an undisturbed run.
class CountingJob {
 public:
  static constexpr uint32_t kDim = 2;
  static constexpr uint32_t kTable = 0;  // in TablesOf(spec)
  static constexpr uint32_t kDense = 1;

  struct Options {
    uint64_t seed = 1;
    v1::Consistency consistency = v1::SYNC;
    uint32_t max_lead = 0;
    v1::RecoverySpec::PushLog push_log = v1::RecoverySpec::OFF;
    uint32_t replicas = 0;
    // Not with sync or a push log.
    bool partial = false;
    uint32_t epochs = 3;
    uint64_t records = 480;
    uint32_t batch = 24;
    uint64_t checkpoint_steps = 0;  // 0: at the end alone
    bool validates = true;
    bool tests = false;
    bool keep_best = false;  // the last evaluation's or, where the seed is even, the first one's
    bool expires = false;    // rows go at checkpoints, and with them their counts
    // The table's admission: 0 and 1: every key gets its row at once.
    uint32_t after_sightings = 0;
    float probability = 1;
    // No batch with this record can be trained: its worker dies of it, or its gradient is no
    // number.
    std::optional<uint64_t> poison;
    bool poison_kills = false;
  };
  explicit CountingJob(const Options& options) : options_(options) {}

  bool sync() const { return options_.consistency == v1::SYNC; }
  bool HasPoison(const std::vector<uint64_t>& records) const;
  bool poison_kills() const { return options_.poison_kills; }
  // Whether rows lack counts: of updates that came before a row was admitted, or before it expired.
  bool MayLack() const { return options_.expires || options_.after_sightings > 1; }
  v1::JobSpec Spec() const;
  // What counting the records of a pattern finds.
  v1::UnitResult Count(const v1::CountRecords& unit) const;

  // Records of a unit, by their numbers.
  static std::vector<uint64_t> RecordsOf(
      const google::protobuf::RepeatedPtrField<v1::RecordRange>& ranges);
  // Distinct.
  static std::vector<uint64_t> KeysOf(uint64_t record);
  // By key [kDim]: of a batch, computed from the rows that it pulled.
  using Rows = std::map<uint64_t, std::pair<float, float>>;
  static Rows Gradients(const std::vector<uint64_t>& records, const Rows& pulled);
  static std::vector<float> DenseGradient(const std::vector<uint64_t>& records);
  // Of a record of a split that is evaluated, whose label is its number's last bit. Each update
  // that its rows have had brings it nearer to that or, where the seed is even, further from it.
  float Score(uint64_t record, const Rows& rows) const;
  // The evaluation is that of a model that has all updates of so many epochs.
  absl::Status CheckEvaluation(const v1::Evaluation& evaluation, uint64_t epochs) const;

  // What a row says of its updates.
  struct History {
    uint64_t last_step = 0;
    uint32_t frequency = 0;
    bool operator==(const History&) const = default;
  };
  struct Model {
    Rows rows;
    std::map<uint64_t, History> histories;    // of the table's rows
    uint64_t samples = 0;                     // that it was trained with
    uint64_t set_aside = 0;                   // and those that it was not
    std::vector<v1::Evaluation> evaluations;  // of its job
  };
  // That in a folder of the checkpoint root.
  static absl::StatusOr<Model> ReadModel(FileSystem& files, const std::string& folder);
  // Every count is right. The message names a row that is not. `lost_steps`: what was pushed to one
  // ps in so many, each a batch, may be missing.
  absl::Status Check(const Model& model, uint64_t lost_steps) const;

 private:
  // Whether the key is one of those that may get a row.
  bool IsChosen(uint64_t key) const;
  // How many updates the rows of so many epochs have had, without those of poison.
  std::map<uint64_t, uint64_t> Counts(uint64_t epochs) const;

  const Options options_;
};

}  // namespace tessera::simulator
