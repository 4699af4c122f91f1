#include "worker/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/job/job_tables.h"
#include "common/partition.h"
#include "common/rpc/server.h"
#include "cuda/devices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ring_service.h"
#include "worker/scorer.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Pair;

// One ps in memory that writes down who was called when. Rows are 0.1 everywhere; nothing is
// applied. As late as a call may be: rows come when the pull is waited for, and by then a push must
// still find what it was given.
class ScriptedPs final : public ParameterClient {
 public:
  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                    const PullOptions& options) override {
    const std::vector<TableRows> late(tables.begin(), tables.end());
    const std::string begins =
        options.begins > 0 ? absl::StrCat(" to begin ", options.begins - 1) : "";
    const float value = poison == options.step ? std::nanf("") : 0.1f;
    return Start(absl::StrCat(options.read_only ? "read " : "pull ", options.step, begins),
                 [late, value] {
                   for (const TableRows& table : late) {
                     std::fill_n(table.rows, table.keys->keys.size() * table.dim, value);
                   }
                 });
  }
  std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows> tables) override {
    if (!has_cold_rows) return nullptr;
    absl::MutexLock lock(&mu);
    told.push_back(tables[0].keys->keys);
    return std::make_unique<AheadCall>(this);
  }
  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables, uint64_t sequence,
                                    double learning_rate_scale) override {
    for (const TableGradients& table : tables) {
      if (table.table != 0) continue;  // "linear": its gradient is that of the logit, summed by key
      for (size_t i = 0; i < table.keys->keys.size(); ++i) {
        gradient[table.keys->keys[i]] += table.gradients[i];
      }
    }
    scales.push_back(learning_rate_scale);
    tables_pushed.push_back(tables.size());
    const std::vector<TableGradients> late(tables.begin(), tables.end());
    return Start(absl::StrCat("push ", sequence), [late, given = Copy(late)] {
      EXPECT_TRUE(Copy(late) == given) << "a push under way lost what it was given";
    });
  }
  std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients>) override {
    return Start("assign", [] {});
  }

  absl::StatusOr<PushProgress> GetProgress(uint64_t confirmed) override {
    events.push_back(absl::StrCat("confirm ", confirmed));
    return PushProgress{confirmed, confirmed};
  }

  absl::StatusOr<std::vector<uint64_t>> CountRows() override {
    events.push_back("count rows");
    return std::vector<uint64_t>{kRows, 0, 0};
  }

  static constexpr uint64_t kRows = 10;
  std::vector<std::string> events;
  bool answers_at_once = false;  // else as late as may be
  std::map<uint64_t, float> gradient;
  std::vector<double> scales;
  std::vector<size_t> tables_pushed;
  std::optional<uint64_t> poison;  // the rows of that step are no numbers
  bool has_cold_rows = false;
  bool reads_at_once = true;  // from its disk, what it is told ahead
  absl::Mutex mu;
  std::vector<std::vector<uint64_t>> told ABSL_GUARDED_BY(mu);  // keys of the first table

 private:
  class AheadCall final : public PendingCall {
   public:
    explicit AheadCall(ScriptedPs* ps) : ps_(ps) {}
    absl::Status Wait() override {
      ps_->events.push_back("looked ahead");
      return absl::UnavailableError("nobody minds");
    }
    bool Done() const override { return ps_->reads_at_once; }

   private:
    ScriptedPs* const ps_;
  };
  class Call final : public PendingCall {
   public:
    Call(ScriptedPs* ps, std::string name, std::function<void()> end)
        : ps_(ps), name_(std::move(name)), end_(std::move(end)) {}
    absl::Status Wait() override {
      end_();
      ps_->events.push_back(name_ + " done");
      return absl::OkStatus();
    }
    bool Done() const override { return ps_->answers_at_once; }

   private:
    ScriptedPs* const ps_;
    const std::string name_;
    const std::function<void()> end_;
  };
  std::unique_ptr<PendingCall> Start(std::string name, std::function<void()> end) {
    events.push_back(name);
    return std::make_unique<Call>(this, std::move(name), std::move(end));
  }
  static std::vector<std::pair<std::vector<uint64_t>, std::vector<float>>> Copy(
      const std::vector<TableGradients>& tables) {
    std::vector<std::pair<std::vector<uint64_t>, std::vector<float>>> copy;
    for (const TableGradients& table : tables) {
      const std::vector<uint64_t>& keys = table.keys->keys;
      copy.push_back({keys, {table.gradients, table.gradients + keys.size() * table.dim}});
    }
    return copy;
  }
};

class TrainerTest : public testing::Test {
 protected:
  static constexpr uint64_t kRecords = 10;

  TrainerTest() : board_(SystemClock()), files_(PosixFileSystem()) {
    folder_ = absl::StrCat(testing::TempDir(), "/tessera-trainer-test-", ::getpid());
    std::filesystem::create_directories(folder_);
    std::ofstream csv(folder_ + "/train.csv");
    for (uint64_t i = 0; i < kRecords; ++i) csv << i % 2 << "," << i << "\n";
    csv.close();

    v1::JobSpec& spec = *assignment_.mutable_spec();
    spec.mutable_data()->set_format(v1::CSV);
    v1::ColumnSpec* label = spec.mutable_data()->add_columns();
    label->set_name("label");
    label->set_role(v1::LABEL);
    v1::ColumnSpec* id = spec.mutable_data()->add_columns();
    id->set_name("id");
    id->set_role(v1::SPARSE);
    id->add_table("linear");
    v1::TableSpec* linear = spec.add_tables();
    linear->set_name("linear");
    linear->set_dim(1);
    spec.mutable_model()->set_name("lr");
    spec.mutable_train()->set_batch_size(4);
    assignment_.set_workers(1);
    *assignment_.mutable_partitions() = NewPartitionMap(1, 8, std::vector<v1::PsAddress>(1));
    kept_.files = &files_;
  }
  ~TrainerTest() override { std::filesystem::remove_all(folder_); }

  // `next_push`: all ps have those below from whoever had the rank before.
  void Prepare(v1::Consistency mode, uint64_t next_push = 0) {
    assignment_.mutable_spec()->mutable_consistency()->set_sparse(mode);
    assignment_.mutable_spec()->mutable_consistency()->set_dense(mode);
    directory_ = std::make_unique<PsDirectory>(assignment_.partitions(), &channels_);
    auto context = NewJobContext(assignment_, {.data_root = folder_,
                                               .scratch_folder = folder_,
                                               .device = device_,
                                               .kept_source = &kept_,
                                               .ps = directory_.get(),
                                               .ranks = ranks_.get(),
                                               .partials = &partials_,
                                               .board = &board_,
                                               .metrics = &metrics_,
                                               .cancellation = &cancellation_});
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    auto ps = std::make_unique<ScriptedPs>();
    ps_ = ps.get();
    context_->parameters = std::move(ps);
    trainer_ = std::make_unique<Trainer>(context_.get(), PushProgress{next_push, next_push});
  }

  v1::Train Unit(uint64_t batch_begin, uint64_t batch_end) {
    v1::Train unit;
    v1::RecordRange* range = unit.add_ranges();
    range->set_path("train.csv");
    range->set_end(kRecords);
    range->set_file_bytes(std::filesystem::file_size(folder_ + "/train.csv"));
    unit.set_batch_begin(batch_begin);
    unit.set_batch_end(batch_end);
    unit.set_batch_size(4);
    unit.set_first_step(batch_begin);
    unit.set_schedule_step(batch_begin);
    unit.set_learning_rate_scale(0.5);
    unit.set_window_records(kRecords);
    return unit;
  }

  size_t PlaceOf(const std::string& event) const {
    const auto it = std::find(ps_->events.begin(), ps_->events.end(), event);
    EXPECT_NE(it, ps_->events.end()) << event;
    return it - ps_->events.begin();
  }

  std::string folder_;
  std::string device_ = "cpu";
  v1::Assignment assignment_;
  InProcessChannels channels_;
  StatusBoard board_;
  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
  Cancellation cancellation_;
  StoppableFileSystem files_;
  KeptSource kept_;
  std::unique_ptr<PsDirectory> directory_;
  RingPartials partials_;
  std::unique_ptr<RankDirectory> ranks_;  // null: no ring
  std::unique_ptr<JobContext> context_;
  ScriptedPs* ps_ = nullptr;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(TrainerTest, SyncAsksForTheNextStepWhenAllPsHaveItsPush) {
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  // A pull tells every ps that all of them have the push of the step before; and so that nobody
  // waits until the next unit begins, the end of a unit tells them, too.
  EXPECT_THAT(ps_->events, ElementsAre("pull 0", "pull 0 done", "push 0", "push 0 done", "pull 1",
                                       "pull 1 done", "push 1", "push 1 done", "pull 2",
                                       "pull 2 done", "push 2", "push 2 done", "confirm 3"));
  EXPECT_EQ(trainer_->next_step(), 3u);
}

TEST_F(TrainerTest, WhoTakesOverAUnitBeginsWhereThePushesThatAllPsHaveEnd) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double before = metrics_.samples.Value();
    Prepare(mode);
    ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
    const std::map<uint64_t, float> whole = ps_->gradient;
    Prepare(mode, /*next_push=*/0);
    ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
    std::map<uint64_t, float> both = ps_->gradient;

    Prepare(mode, /*next_push=*/2);
    const auto result = trainer_->Train(Unit(0, 3));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 2"), 1);
    EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 1"), 0);
    EXPECT_EQ(ps_->gradient.size(), 2u) << "the last batch has two records";
    both.merge(ps_->gradient);
    EXPECT_EQ(both, whole) << "the same records as of one that trains all";
    // The unit is reported whole.
    EXPECT_EQ(result->samples(), kRecords);
    EXPECT_NEAR(result->loss_sum(), kRecords * std::log(2.0), 0.1 * kRecords);
    EXPECT_EQ(metrics_.samples.Value() - before, kRecords + 8 + 2) << "each time what was trained";
  }
}

TEST_F(TrainerTest, AUnitThatAllPsHaveIsReportedAndNotTrained) {
  Prepare(v1::SYNC, /*next_push=*/3);
  EXPECT_EQ(trainer_->next_step(), 3u) << "an evaluation that comes first waits for the same steps";
  const auto result = trainer_->Train(Unit(0, 3));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("confirm 3"));
  EXPECT_EQ(result->samples(), kRecords);
  EXPECT_TRUE(std::isnan(result->loss_sum())) << "nobody here knows it";
  EXPECT_TRUE(std::isnan(result->auc()));
  EXPECT_EQ(result->train_seconds(), 0);
}

TEST_F(TrainerTest, ACarefulUnitTouchesNoBatchBeforeTheOneBeforeIsDone) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    Prepare(mode);
    const auto usual = trainer_->Train(Unit(0, 3));
    ASSERT_TRUE(usual.ok()) << usual.status();
    const std::map<uint64_t, float> gradient = ps_->gradient;
    Prepare(mode);
    v1::Train unit = Unit(0, 3);
    unit.set_careful(true);
    const auto result = trainer_->Train(unit);
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<std::string> expected;
    for (int i = 0; i < 3; ++i) {
      const std::string pull = absl::StrCat("pull ", mode == v1::SYNC ? i : 0);
      for (const std::string& event : {pull, absl::StrCat("push ", i)}) {
        expected.push_back(event);
        expected.push_back(event + " done");
      }
    }
    if (mode == v1::SYNC) expected.push_back("confirm 3");
    EXPECT_EQ(ps_->events, expected);
    EXPECT_EQ(ps_->gradient, gradient);
    EXPECT_EQ(result->samples(), usual->samples());
    EXPECT_DOUBLE_EQ(result->loss_sum(), usual->loss_sum());
  }
}

TEST_F(TrainerTest, ABatchThatIsSetAsideIsPushedEmptyBeforeAnythingIsRead) {
  Prepare(v1::SYNC, /*next_push=*/1);
  v1::Train unit = Unit(0, 3);
  unit.set_careful(true);
  unit.add_set_aside(1);
  auto result = trainer_->Train(unit);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("pull 1", "pull 1 done", "push 1", "push 1 done", "pull 2",
                                       "pull 2 done", "push 2", "push 2 done", "confirm 3"));
  EXPECT_EQ(ps_->tables_pushed[0], 0u);
  EXPECT_GT(ps_->tables_pushed[1], 0u);
  EXPECT_EQ(ps_->gradient.size(), 2u) << "only the last batch, of two records";
  EXPECT_EQ(result->samples(), kRecords - 4);
  EXPECT_EQ(trainer_->progress().next, 3u);
  EXPECT_EQ(trainer_->progress().end, 3u);

  // Where nobody has trained another of the unit, its file may be what nobody can read.
  Prepare(v1::ASYNC, /*next_push=*/2);
  unit = Unit(2, 3);
  unit.set_careful(true);
  unit.add_set_aside(2);
  unit.mutable_ranges(0)->set_path("gone.csv");
  result = trainer_->Train(unit);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("push 2", "push 2 done"));
  EXPECT_EQ(result->samples(), 0u);
}

TEST_F(TrainerTest, EachRecordIsTrainedOrBadOrSetAsideHoweverOftenItsUnitIsTried) {
  assignment_.mutable_spec()->mutable_recovery()->set_set_aside_after(2);
  assignment_.mutable_spec()->mutable_data()->set_max_bad_records(1);
  std::ofstream(folder_ + "/train.csv", std::ios::app) << "neither,3\n";
  const auto unit = [this](uint64_t begin, uint64_t end, bool careful, uint64_t aside = 9) {
    v1::Train unit = Unit(begin, end);
    unit.mutable_ranges(0)->set_end(kRecords + 1);
    unit.set_careful(careful);
    if (aside != 9) unit.add_set_aside(aside);
    return unit;
  };
  const auto trained_and_bad = [this](const v1::Train& unit) -> std::pair<int, int> {
    const auto result = trainer_->Train(unit);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {-1, -1};
    EXPECT_EQ(result->bad_record_message().empty(), result->bad_records() == 0);
    return {static_cast<int>(result->samples()), static_cast<int>(result->bad_records())};
  };
  // Batches of 4, 4 and 3 records, of which the last one lacks one.
  Prepare(v1::SYNC);
  ps_->poison = 1;
  EXPECT_FALSE(trainer_->Train(unit(0, 2, false)).ok());
  EXPECT_FALSE(trainer_->Train(unit(0, 2, true)).ok());
  EXPECT_THAT(trained_and_bad(unit(0, 2, true, /*aside=*/1)), Pair(4, 0));
  EXPECT_THAT(trained_and_bad(unit(2, 3, false)), Pair(2, 1));
  // By a worker that takes the unit over.
  Prepare(v1::SYNC, /*next_push=*/1);
  EXPECT_THAT(trained_and_bad(unit(0, 3, true, /*aside=*/1)), Pair(6, 1));
  Prepare(v1::SYNC, /*next_push=*/3);
  EXPECT_THAT(trained_and_bad(unit(0, 3, false)), Pair(10, 1));
  // All of the first unit is set aside, by a worker that has not read it.
  Prepare(v1::SYNC);
  EXPECT_THAT(trained_and_bad(unit(0, 1, true, /*aside=*/0)), Pair(0, 0));
  EXPECT_THAT(trained_and_bad(unit(1, 3, false)), Pair(6, 1));
  // The batch that lacks one is set aside, by a worker that has read it.
  Prepare(v1::SYNC);
  EXPECT_THAT(trained_and_bad(unit(0, 2, false)), Pair(8, 0));
  ps_->poison = 2;
  EXPECT_FALSE(trainer_->Train(unit(2, 3, true)).ok());
  EXPECT_THAT(trained_and_bad(unit(2, 3, true, /*aside=*/2)), Pair(0, 0));
  v1::Train again = unit(0, 3, false);
  again.set_epoch(1);
  again.set_first_step(3);
  EXPECT_THAT(trained_and_bad(again), Pair(10, 0)) << "each record counts once";
}

TEST_F(TrainerTest, MoreBadRecordsThanTheJobMayHaveEndItBeforeAnyOfTheirWindowIsTrained) {
  std::ofstream(folder_ + "/train.csv", std::ios::app) << "neither,3\nnor,4\n";
  v1::Train unit = Unit(0, 1);
  unit.mutable_ranges(0)->set_end(kRecords + 2);
  for (const uint64_t allowed : {2, 1}) {
    assignment_.mutable_spec()->mutable_data()->set_max_bad_records(allowed);
    Prepare(v1::ASYNC);
    const auto result = trainer_->Train(unit);
    EXPECT_EQ(result.ok(), allowed == 2);
    if (result.ok()) continue;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("2 bad records among 12"), HasSubstr("train.csv:"),
                      HasSubstr("data.max_bad_records allows 1")));
    EXPECT_THAT(ps_->events, testing::IsEmpty());
  }
}

TEST_F(TrainerTest, ARankTakesPartInTheSumsOfEveryStepAlsoOfABatchThatIsSetAside) {
  // Rank 1 of 2 trains; its share is the one block of dense parameters. Rank 0 is played here.
  assignment_.set_job_id("job-1");
  assignment_.set_workers(2);
  assignment_.set_rank(1);
  assignment_.mutable_spec()->mutable_train()->set_dense_gradients(v1::TrainSpec::ALL_REDUCE);
  RingPartials other;
  RingPartials* const all[] = {&other, &partials_};
  RingService services[] = {RingService(&other), RingService(&partials_)};
  std::unique_ptr<RpcServer> servers[2];
  for (uint32_t r = 0; r < 2; ++r) {
    servers[r] = *RpcServer::Start({}, {&services[r]});
    assignment_.add_ranks()->set_address(servers[r]->address());
  }
  const auto network = NewNetworkChannels();
  ranks_ = std::make_unique<RankDirectory>(assignment_, network.get());
  v1::RingHeader header;
  header.set_job_id("job-1");
  GradientRing ring({.header = header,
                     .blocks = 1,
                     .ranks = ranks_.get(),
                     .partials = &other,
                     .board = &board_,
                     .cancellation = &cancellation_});
  const auto begin = [&] {
    for (uint32_t r = 0; r < 2; ++r) {
      all[r]->Begin({.job_id = "job-1", .generation = 0, .rank = r, .ranks = 2});
    }
    Prepare(v1::SYNC);
  };
  const auto train = [&](const v1::Train& unit, uint64_t step, bool contributes) {
    std::vector<float> values(kDenseBlockFloats, 7);
    std::thread rank_0(
        [&] { EXPECT_TRUE(ring.Reduce(step, contributes, absl::MakeSpan(values)).ok()); });
    const auto result = trainer_->Train(unit);
    EXPECT_TRUE(result.ok()) << result.status();
    rank_0.join();
    std::vector<TableGradients> writes;
    context_->reduction->AddWrites(&writes);
    return writes.empty() ? 0 : writes[0].gradients[0];
  };

  begin();
  const float alone = train(Unit(0, 1), 0, /*contributes=*/false);
  EXPECT_NE(alone, 0) << "the gradient of the bias";
  EXPECT_EQ(ps_->tables_pushed[0], 3u);
  begin();
  EXPECT_EQ(train(Unit(0, 1), 0, true), 7 + alone);
  v1::Train aside = Unit(1, 2);
  aside.set_careful(true);
  aside.add_set_aside(1);
  EXPECT_EQ(train(aside, 1, true), 7) << "only the other's";
  EXPECT_EQ(ps_->tables_pushed[1], 2u) << "no rows";
  aside = Unit(2, 3);
  aside.set_careful(true);
  aside.add_set_aside(2);
  train(aside, 2, false);
  EXPECT_EQ(ps_->tables_pushed[2], 0u) << "nobody has samples: nothing is pushed";

  // Its gradients may have left though the step failed.
  begin();
  other.Begin({.job_id = "job-1", .generation = 1, .rank = 0, .ranks = 2});
  EXPECT_EQ(trainer_->Train(Unit(0, 1)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(trainer_->progress().next, 0u);
  EXPECT_EQ(trainer_->progress().end, 1u);
}

TEST_F(TrainerTest, AGradientThatIsNotFiniteReachesNoPsWhereBatchesMayBeSetAside) {
  assignment_.mutable_spec()->mutable_recovery()->set_set_aside_after(3);
  Prepare(v1::SYNC);
  ps_->poison = 1;
  const auto result = trainer_->Train(Unit(0, 3));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("step 1: the gradient of table linear"), HasSubstr("loss is nan")));
  EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 1"), 0);
  EXPECT_EQ(trainer_->progress().next, 1u);
  EXPECT_EQ(trainer_->progress().end, 1u) << "no ps has it";
}

TEST_F(TrainerTest, AsyncPushesHaveTheNumbersOfTheUnit) {
  Prepare(v1::ASYNC);
  v1::Train unit = Unit(0, 3);
  unit.set_first_step(7);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  for (const char* push : {"push 7", "push 8", "push 9"}) PlaceOf(push);
  EXPECT_EQ(trainer_->next_step(), 0u) << "nothing waits for a step";
}

TEST_F(TrainerTest, APullWaitsForWhatWentAheadOfIt) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    Prepare(mode);
    ps_->has_cold_rows = true;
    ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
    {
      absl::MutexLock lock(&ps_->mu);
      ASSERT_EQ(ps_->told.size(), 2u) << "each batch once";
      std::set<uint64_t> keys;
      for (const auto& batch : ps_->told) keys.insert(batch.begin(), batch.end());
      for (const auto& [key, gradient] : ps_->gradient) EXPECT_TRUE(keys.contains(key)) << key;
      EXPECT_EQ(keys.size(), 8u) << "two batches of four records, each with an id of its own";
    }
    for (const int step : {0, 1}) {
      const std::string pull = absl::StrCat("pull ", mode == v1::SYNC ? step : 0);
      EXPECT_EQ(ps_->events[PlaceOf(pull) - 1], "looked ahead");
    }
  }
}

TEST_F(TrainerTest, NothingIsPulledAheadThatIsStillBeingReadFromDisk) {
  Prepare(v1::ASYNC);
  ps_->has_cold_rows = true;
  ps_->reads_at_once = false;
  ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
  EXPECT_THAT(ps_->events,
              ElementsAre("looked ahead", "pull 0", "pull 0 done", "push 0", "looked ahead",
                          "pull 0", "pull 0 done", "push 0 done", "push 1", "push 1 done"));
}

TEST_F(TrainerTest, ACarefulUnitLooksAtNoBatchAhead) {
  Prepare(v1::SYNC);
  ps_->has_cold_rows = true;
  v1::Train unit = Unit(0, 2);
  unit.set_careful(true);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  absl::MutexLock lock(&ps_->mu);
  EXPECT_TRUE(ps_->told.empty());
}

TEST_F(TrainerTest, AsyncPullsTheNextBatchBeforeItPushesThisOne) {
  Prepare(v1::ASYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  const auto pulls = std::count(ps_->events.begin(), ps_->events.end(), "pull 0");
  EXPECT_EQ(pulls, 3);  // async pulls wait for no step
  EXPECT_LT(std::find(ps_->events.begin() + 1, ps_->events.end(), "pull 0") - ps_->events.begin(),
            static_cast<ptrdiff_t>(PlaceOf("push 0")));
}

TEST_F(TrainerTest, BoundedPullsSayWhichPushTheyBegin) {
  Prepare(v1::BOUNDED);
  v1::Train unit = Unit(0, 3);
  unit.set_first_step(7);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  for (const uint64_t step : {7, 8, 9}) {
    EXPECT_LT(PlaceOf(absl::StrCat("pull 0 to begin ", step)),
              PlaceOf(absl::StrCat("push ", step)));
  }
}

TEST_F(TrainerTest, EveryRecordIsTrainedOnceHoweverTheWindowIsCutIntoUnits) {
  for (const std::vector<uint64_t>& cuts :
       std::vector<std::vector<uint64_t>>{{0, 3}, {0, 1, 3}, {0, 1, 2, 3}}) {
    Prepare(v1::SYNC);
    uint64_t samples = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto result = trainer_->Train(Unit(cuts[i], cuts[i + 1]));
      ASSERT_TRUE(result.ok()) << result.status();
      samples += result->samples();
    }
    EXPECT_EQ(samples, kRecords);
    EXPECT_EQ(ps_->gradient.size(), kRecords);  // each record has a key of its own
    // The gradient of a record is (p - label) / samples of its step, with p the same for all.
    for (const auto& [key, gradient] : ps_->gradient) {
      EXPECT_EQ(gradient > 0, key % 2 == 0) << key;
    }
    std::vector<float> sizes;
    for (const auto& [key, gradient] : ps_->gradient) sizes.push_back(std::abs(gradient));
    const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_GT(*smallest, 0.4f / 4);
    EXPECT_LT(*largest, 0.6f / 2);  // the last batch has two records
  }
}

TEST_F(TrainerTest, ARankWithoutRecordsStillTakesPartInTheStep) {
  Prepare(v1::SYNC);
  const auto result = trainer_->Train(Unit(3, 5));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples(), 0u);
  EXPECT_THAT(ps_->tables_pushed, ElementsAre(0u, 0u));
  EXPECT_LT(PlaceOf("push 3"), PlaceOf("pull 4 done"));
}

TEST_F(TrainerTest, TheLearningRateFollowsTheScheduleTimesTheUnitsScale) {
  assignment_.mutable_spec()->mutable_train()->mutable_schedule()->set_warmup_steps(4);
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  EXPECT_THAT(ps_->scales, ElementsAre(0.125, 0.25, 0.375));
}

TEST_F(TrainerTest, ScoringReadsOnlyAndWaitsForWhatWasPushed) {
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  ps_->events.clear();
  Scorer scorer(context_.get());
  std::vector<float> labels;
  const auto summary =
      scorer.Score({Unit(0, 1).ranges(0)}, trainer_->next_step(), [&](const auto& scores) {
        EXPECT_EQ(scores.outputs.size(), scores.labels.size());
        EXPECT_TRUE(scores.groups.empty());
        labels.insert(labels.end(), scores.labels.begin(), scores.labels.end());
        return absl::OkStatus();
      });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, kRecords);
  EXPECT_THAT(labels, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1));  // in file order
  for (const std::string& event : ps_->events) EXPECT_THAT(event, testing::StartsWith("read 3"));
}

TEST_F(TrainerTest, ScoresOfSamplesWithEqualIdsHaveEqualGroups) {
  std::ofstream(folder_ + "/train.csv") << "0,7\n1,8\n0,7\n1,9\n0,8\n1,1\n0,2\n1,3\n0,4\n1,5\n";
  assignment_.mutable_spec()->mutable_evaluation()->set_group_by("id");
  Prepare(v1::SYNC);
  Scorer scorer(context_.get());
  std::vector<uint64_t> groups;
  const auto summary = scorer.Score({Unit(0, 1).ranges(0)}, 0, [&](const auto& scores) {
    groups.insert(groups.end(), scores.groups.begin(), scores.groups.end());
    return absl::OkStatus();
  });
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(groups.size(), kRecords);
  EXPECT_EQ(groups[0], groups[2]);
  EXPECT_EQ(groups[1], groups[4]);
  EXPECT_EQ(std::set<uint64_t>(groups.begin(), groups.end()).size(), kRecords - 2);
}

TEST_F(TrainerTest, ARegressionTakesAnyLabelsAndHasNoAuc) {
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << "-2.5," << i << "\n";
  csv.close();
  assignment_.mutable_spec()->mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  Prepare(v1::SYNC);
  const auto result = trainer_->Train(Unit(0, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isnan(result->auc()));
  // Row and bias are pulled as 0.1 each.
  EXPECT_NEAR(result->loss_sum(), 4 * 2.7 * 2.7, 1e-5);
  ASSERT_FALSE(ps_->gradient.empty());
  for (const auto& [key, gradient] : ps_->gradient) {
    EXPECT_FLOAT_EQ(gradient, 2 * 2.7f / 4) << key;
  }
}

TEST_F(TrainerTest, RowsThatTheCardKeepsAreNotPulledAgainWhereTheyMayBeOld) {
  device_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_bytes(4096);
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double kept = metrics_.card_rows_kept.Value();
    Prepare(mode);
    for (uint64_t unit = 0; unit < 2; ++unit) {
      ps_->gradient.clear();
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      const absl::Status status = trainer_->Train(again).status();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(ps_->gradient.size(), kRecords) << "gradients are pushed as ever";
    }
    // Each batch is of other records, and the second unit has those of the first again.
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept, mode == v1::SYNC ? 0 : kRecords);
  }
}

TEST_F(TrainerTest, AKeptRowIsUsedInAsManyFurtherBatchesAsTheJobSays) {
  device_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  // All records have one id: each of 12 batches asks for its row or has it.
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << i % 2 << ",7\n";
  csv.close();
  struct Case {
    v1::Consistency mode;
    uint32_t max_lead, max_age;  // of the job
    uint32_t age;
  };
  for (const Case& of :
       {Case{v1::ASYNC, 0, 0, 8}, Case{v1::ASYNC, 0, 2, 2}, Case{v1::BOUNDED, 0, 0, 4},
        Case{v1::BOUNDED, 20, 0, 8}, Case{v1::BOUNDED, 3, 2, 2}, Case{v1::SYNC, 0, 0, 0}}) {
    SCOPED_TRACE(absl::StrCat(v1::Consistency_Name(of.mode), " ", of.max_lead, " ", of.max_age));
    v1::RowCacheSpec* const cache =
        assignment_.mutable_spec()->mutable_train()->mutable_row_cache();
    cache->set_bytes(4096);
    cache->set_max_age(of.max_age);
    assignment_.mutable_spec()->mutable_consistency()->set_max_lead(of.max_lead);
    const double pulled_before = metrics_.card_rows_pulled.Value();
    const double kept_before = metrics_.card_rows_kept.Value();
    const double ages_before = metrics_.card_row_ages.Value();
    Prepare(of.mode);
    constexpr uint32_t kBatches = 12;
    for (uint64_t unit = 0; unit < kBatches / 3; ++unit) {
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      ASSERT_TRUE(trainer_->Train(again).ok());
    }
    // It is pulled in batches 0, age + 1, 2 * (age + 1) and so on; in sync in all, which count not.
    uint32_t pulled = 0, ages = 0;
    for (uint32_t batch = 0; batch < kBatches; ++batch) {
      pulled += batch % (of.age + 1) == 0;
      ages += batch % (of.age + 1);
    }
    const bool counts = of.mode != v1::SYNC;
    EXPECT_EQ(metrics_.card_rows_pulled.Value() - pulled_before, counts ? pulled : 0);
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept_before, kBatches - pulled);
    EXPECT_EQ(metrics_.card_row_ages.Value() - ages_before, ages);
  }
}

TEST_F(TrainerTest, RowsThatAreThereInTimeGoToTheCardBeforeTheBatchBeforeIsPushed) {
  device_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    std::map<uint64_t, float> gradient;
    for (const bool at_once : {false, true}) {
      Prepare(mode);
      ps_->answers_at_once = at_once;
      const auto result = trainer_->Train(Unit(0, 3));
      ASSERT_TRUE(result.ok()) << result.status();
      const std::string second = mode == v1::SYNC      ? "pull 1 done"
                                 : mode == v1::BOUNDED ? "pull 0 to begin 1 done"
                                                       : "pull 0 done";
      const auto push = ps_->events.begin() + static_cast<ptrdiff_t>(PlaceOf("push 0"));
      // In async the first one is that of the first batch.
      EXPECT_EQ(std::count(ps_->events.begin(), push, second),
                (mode == v1::ASYNC) + (at_once && mode != v1::SYNC));
      EXPECT_EQ(ps_->gradient.size(), kRecords);
      if (!gradient.empty()) {
        EXPECT_EQ(ps_->gradient, gradient) << "the same bits";
      }
      gradient = ps_->gradient;
    }
  }
}

TEST_F(TrainerTest, ACardThatKeepsAShareOfTheRowsIsToldHowManyThereAre) {
  device_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
  if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
    GTEST_SKIP() << cuda::ListDevices().status();
  }
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_share(1);
  const auto counts = [this] {
    return std::count(ps_->events.begin(), ps_->events.end(), "count rows");
  };
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double kept = metrics_.card_rows_kept.Value();
    Prepare(mode);
    EXPECT_THAT(ps_->events, testing::IsEmpty());
    for (uint64_t unit = 0; unit < 2; ++unit) {
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      ASSERT_TRUE(trainer_->Train(again).ok());
    }
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept, mode == v1::SYNC ? 0 : kRecords);
    EXPECT_EQ(counts(), mode == v1::SYNC ? 0 : 2) << "once a unit that keeps some";
    Scorer scorer(context_.get());
    ASSERT_TRUE(scorer
                    .Score({Unit(0, 1).ranges(0)}, trainer_->next_step(),
                           [](const auto&) { return absl::OkStatus(); })
                    .ok());
    EXPECT_EQ(counts(), mode == v1::SYNC ? 1 : 3);
  }
}

TEST_F(TrainerTest, StepsWhoseGradientsAreBeyondFloat16ArePushedWithoutThem) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card need not round";
  device_ = "emulated";
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_train()->set_precision(v1::TrainSpec::FLOAT16);
  spec.mutable_model()->set_name("layers");
  v1::LayerSpec* flat = spec.mutable_model()->add_layers();
  flat->set_name("flat");
  flat->set_op("flatten");
  flat->add_inputs("linear");
  v1::LayerSpec* product = spec.mutable_model()->add_layers();
  product->set_name("product");
  product->set_op("linear");
  product->add_inputs("flat");
  (*product->mutable_options()->mutable_fields())["units"].set_number_value(1);
  spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  // 2^16 * 2 * 3 / 4 is above 65504, and half of that is not.
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << 3.1 << "," << i << "\n";
  csv.close();
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double skipped = metrics_.skipped_steps.Value();
    Prepare(mode);
    const auto result = trainer_->Train(Unit(0, 2));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(std::isfinite(result->loss_sum()));
    EXPECT_THAT(ps_->tables_pushed, ElementsAre(0, Gt(0))) << "a push a step, whatever it has";
    EXPECT_EQ(trainer_->progress().next, 2u);
    EXPECT_EQ(metrics_.skipped_steps.Value() - skipped, 1);
    EXPECT_EQ(ps_->gradient.size(), 4u) << "the records of the last batch";
    for (const auto& [key, gradient] : ps_->gradient) EXPECT_TRUE(std::isfinite(gradient));
  }
}

TEST_F(TrainerTest, APrecisionOfCardsIsRefusedOnTheCpu) {
  assignment_.mutable_spec()->mutable_train()->set_precision(v1::TrainSpec::TF32);
  for (const std::string device : {"cpu", "auto"}) {
    if (device == "auto" && cuda::ListDevices().ok()) continue;
    directory_ = std::make_unique<PsDirectory>(assignment_.partitions(), &channels_);
    const auto context = NewJobContext(assignment_, {.data_root = folder_,
                                                     .scratch_folder = folder_,
                                                     .device = device,
                                                     .kept_source = &kept_,
                                                     .ps = directory_.get(),
                                                     .board = &board_,
                                                     .metrics = &metrics_,
                                                     .cancellation = &cancellation_});
    EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition) << device;
    EXPECT_THAT(std::string(context.status().message()), HasSubstr("train.precision: tf32"));
  }
}

TEST_F(TrainerTest, CountsStepsAndSamplesAndDividesItsTime) {
  Prepare(v1::SYNC);
  const absl::Duration start = SystemClock().Monotonic();
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  const double all = absl::ToDoubleSeconds(SystemClock().Monotonic() - start);
  EXPECT_EQ(metrics_.steps.Value(), 3);
  EXPECT_EQ(metrics_.samples.Value(), kRecords);
  double parts = 0;
  for (const Counter* part : {&metrics_.read_seconds, &metrics_.pull_seconds,
                              &metrics_.compute_seconds, &metrics_.push_seconds}) {
    EXPECT_GT(part->Value(), 0);
    parts += part->Value();
  }
  EXPECT_LE(parts, all);
}

TEST_F(TrainerTest, ReadingEndsSoonWhenItIsStopped) {
  Prepare(v1::SYNC);
  files_.Stop();
  EXPECT_EQ(trainer_->Train(Unit(0, 3)).status().code(), absl::StatusCode::kCancelled);
  files_.Resume();
  EXPECT_TRUE(trainer_->Train(Unit(0, 3)).ok());
}

}  // namespace
}  // namespace tessera::worker
