#pragma once

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
#include "common/job/dense_layout.h"
#include "common/job/job_tables.h"
#include "common/partition.h"
#include "common/rpc/server.h"
#include "cuda/devices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ring/ring_service.h"
#include "worker/scorer.h"
#include "worker/trainer.h"

namespace tessera::worker {

// One ps in memory that writes down who was called when. Rows are 0.1 everywhere, but for the zeros
// that fill up blocks of dense parameters; nothing is applied. As late as a call may be: rows come
// when the pull is waited for, and by then a push must still find what it was given.
class ScriptedPs final : public ParameterClient {
 public:
  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                    const PullOptions& options) override {
    const std::vector<TableRows> late(tables.begin(), tables.end());
    const std::string begins =
        options.may_wait ? absl::StrCat(" to begin ", options.begins - 1) : "";
    if (!options.read_only) pulled_for.push_back(options.begins);
    const float value = poison == options.step ? std::nanf("") : 0.1f;
    return Start(absl::StrCat(options.read_only ? "read " : "pull ", options.step, begins),
                 [this, late, value] {
                   for (const TableRows& table : late) {
                     std::fill_n(table.rows, table.keys->keys.size() * table.dim, value);
                     if (dense.contains(table.table)) FillUp(table);
                   }
                 });
  }
  std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows> tables) override {
    if (!has_cold_rows) return nullptr;
    absl::MutexLock lock(&mu);
    told.push_back(tables[0].keys->keys);
    return std::make_unique<AheadCall>(this);
  }
  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables,
                                    const PushOptions& options) override {
    for (const TableGradients& table : tables) {
      pushed[table.table].assign(table.gradients,
                                 table.gradients + table.keys->keys.size() * table.dim);
      if (table.table != 0) continue;  // "linear": its gradient is that of the logit, summed by key
      for (size_t i = 0; i < table.keys->keys.size(); ++i) {
        gradient[table.keys->keys[i]] += table.gradients[i];
      }
    }
    scales.push_back(options.learning_rate_scale);
    confirmed.push_back(options.confirmed);
    tables_pushed.push_back(tables.size());
    const std::vector<TableGradients> late(tables.begin(), tables.end());
    return Start(absl::StrCat("push ", options.sequence), [late, given = Copy(late)] {
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
  std::map<uint32_t, DenseLayout> dense;  // of the tables of dense parameters, by number: flat ones
  std::vector<std::string> events;
  bool answers_at_once = false;  // else as late as may be
  std::map<uint64_t, float> gradient;
  std::map<uint32_t, std::vector<float>> pushed;  // the last gradients of each table
  std::vector<double> scales;                     // of the pushes
  std::vector<uint64_t> confirmed;                // likewise
  std::vector<size_t> tables_pushed;
  std::vector<uint64_t> pulled_for;  // PullOptions::begins of pulls to train
  std::optional<uint64_t> poison;    // the rows of that step are no numbers
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
  void FillUp(const TableRows& table) const {
    for (size_t i = 0; i < table.keys->keys.size(); ++i) {
      float* const row = table.rows + i * table.dim;
      std::fill(row + dense.at(table.table).blocks()[table.keys->keys[i]].floats,
                row + kDenseBlockFloats, 0.0f);
    }
  }
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

class TrainerTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRecords = 10;

  TrainerTest() : board_(SystemClock()), files_(PosixFileSystem()) {
    folder_ = absl::StrCat(::testing::TempDir(), "/tessera-trainer-test-", ::getpid());
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
    auto context = NewContext();
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    auto ps = std::make_unique<ScriptedPs>();
    ps_ = ps.get();
    const auto tables = static_cast<uint32_t>(context_->spec().tables_size());
    ps->dense = {{tables, DenseLayout::Flat(context_->trained.size())},
                 {tables + 1, DenseLayout::Flat(context_->statistics.size())}};
    context_->parameters = std::move(ps);
    trainer_ = std::make_unique<Trainer>(context_.get(), PushProgress{next_push, next_push});
  }

  // Of the assignment, on device_.
  absl::StatusOr<std::unique_ptr<JobContext>> NewContext() {
    trainer_ = nullptr;
    context_ = nullptr;
    directory_ = std::make_unique<PsDirectory>(assignment_.partitions(), &channels_);
    return NewJobContext(assignment_, {.data_root = folder_,
                                       .scratch_folder = folder_,
                                       .device = device_,
                                       .kept_source = &kept_,
                                       .ps = directory_.get(),
                                       .ranks = ranks_.get(),
                                       .partials = &partials_,
                                       .board = &board_,
                                       .metrics = &metrics_,
                                       .cancellation = &cancellation_});
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

}  // namespace tessera::worker
