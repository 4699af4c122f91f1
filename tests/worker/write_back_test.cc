// Training with rows that a card keeps and trains (train.row_cache.write_back), on a card or an
// emulated one, against rows that live at ps.
#include "common/job/optimizer.h"
#include "common/random.h"
#include "tests/optimizers.h"
#include "tests/worker/tables_ps.h"
#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

class WriteBackOnCuda : public TrainerTest {
 protected:
  static constexpr uint64_t kMany = 200, kIds = 30, kBatch = 8;

  void SetUp() override {
    card_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
    if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
      GTEST_SKIP() << cuda::ListDevices().status();
    }
    // Two columns, and a second table for both; ids often come again, some columns are empty.
    std::ofstream csv(folder_ + "/train.csv");
    for (uint64_t i = 0; i < kMany; ++i) {
      const uint64_t id = RandomBelow(1, i, kIds), other = RandomBelow(2, i, kIds);
      csv << (id + other) % 3 % 2 << "," << id << "," << other << "\n";
    }
    csv.close();
    *assignment_.mutable_partitions() =
        NewPartitionMap(1, kPartitions, std::vector<v1::PsAddress>(2));
    v1::JobSpec& spec = *assignment_.mutable_spec();
    spec.set_seed(3);
    spec.mutable_data()->mutable_columns(1)->add_table("embedding");
    v1::ColumnSpec* const other = spec.mutable_data()->add_columns();
    *other = spec.data().columns(1);
    other->set_name("other");
    v1::TableSpec* const embedding = spec.add_tables();
    embedding->set_name("embedding");
    embedding->set_dim(5);
    for (v1::TableSpec& table : *spec.mutable_tables()) {
      table.mutable_initializer()->mutable_normal()->set_stddev(0.3f);
      table.mutable_optimizer()->set_learning_rate(0.1f);
      table.mutable_optimizer()->mutable_adagrad();
    }
    spec.mutable_model()->set_name("fm");
    spec.mutable_model()->mutable_optimizer()->set_learning_rate(0.1f);
    spec.mutable_model()->mutable_optimizer()->mutable_sgd();
    spec.mutable_train()->set_batch_size(kBatch);
  }

  void SetCache(uint64_t bytes) {
    v1::RowCacheSpec& cache = *assignment_.mutable_spec()->mutable_train()->mutable_row_cache();
    cache.set_bytes(bytes);
    cache.set_write_back(bytes > 0);
  }
  // A network of one product over rows of one table, none of which comes twice in a window; every
  // label is `label`.
  void UseOneProduct(const std::string& label) {
    v1::JobSpec& spec = *assignment_.mutable_spec();
    spec.mutable_data()->mutable_columns()->RemoveLast();
    spec.mutable_data()->mutable_columns(1)->mutable_table()->RemoveLast();
    spec.mutable_tables()->RemoveLast();
    spec.mutable_model()->set_name("layers");
    spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
    v1::LayerSpec* const flat = spec.mutable_model()->add_layers();
    flat->set_name("flat");
    flat->set_op("flatten");
    flat->add_inputs("linear");
    v1::LayerSpec* const product = spec.mutable_model()->add_layers();
    product->set_name("product");
    product->set_op("linear");
    product->add_inputs("flat");
    (*product->mutable_options()->mutable_fields())["units"].set_number_value(1);
    std::ofstream csv(folder_ + "/train.csv");
    for (uint64_t i = 0; i < kMany; ++i) csv << label << "," << i << "\n";
    csv.close();
  }
  // `sparse`: the mode of the tables; the dense parameters are in sync, unless told otherwise.
  void Open(v1::Consistency sparse, const std::string& device, bool at_once = true,
            v1::Consistency dense = v1::SYNC, bool late_pushes = false) {
    assignment_.mutable_spec()->mutable_consistency()->set_sparse(sparse);
    assignment_.mutable_spec()->mutable_consistency()->set_dense(dense);
    device_ = device;
    auto context = NewContext();
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    auto tables = std::make_unique<TablesPs>(assignment_.spec(), assignment_.partitions(), at_once,
                                             late_pushes);
    tables_ = tables.get();
    context_->parameters = std::move(tables);
    context_->trained_blocks->CopyIn(std::vector<float>(context_->trained.size(), 0.5f));
    context_->statistics_blocks->CopyIn(std::vector<float>(context_->statistics.size(), 0.0f));
    const TableGradients initial[] = {context_->trained_blocks->Write(),
                                      context_->statistics_blocks->Write()};
    ASSERT_TRUE(context_->parameters->Assign(initial)->Wait().ok());
    trainer_ = std::make_unique<Trainer>(context_.get(), PushProgress{});
    step_ = 0;
  }
  absl::StatusOr<v1::UnitResult> TryUnit(uint64_t begin, uint64_t end) {
    v1::Train unit = Unit(begin, end);
    unit.mutable_ranges(0)->set_end(kMany);
    unit.set_window_records(kMany);
    unit.set_batch_size(kBatch);
    unit.set_first_step(step_);
    return trainer_->Train(unit);
  }
  // The next batches of the window, over and over.
  double Train(uint64_t batches) {
    constexpr uint64_t kBatches = kMany / kBatch;
    double loss = 0;
    while (batches > 0) {
      const uint64_t begin = step_ % kBatches, n = std::min(batches, kBatches - begin);
      const auto result = TryUnit(begin, begin + n);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return NAN;
      loss = result->loss_sum() / static_cast<double>(result->samples());
      step_ += n;
      batches -= n;
    }
    return loss;
  }
  using AllRows = std::vector<std::map<uint64_t, std::vector<float>>>;
  AllRows Rows() const { return {tables_->Rows(0), tables_->Rows(1)}; }
  static void ExpectNear(const AllRows& rows, const AllRows& expected, float error) {
    for (size_t t = 0; t < rows.size(); ++t) {
      ASSERT_EQ(rows[t].size(), expected[t].size());
      for (const auto& [key, floats] : rows[t]) {
        EXPECT_THAT(floats, ::testing::Pointwise(::testing::FloatNear(error), expected[t].at(key)))
            << "table " << t << ", key " << key;
      }
    }
  }

  std::string card_;
  TablesPs* tables_ = nullptr;
  uint64_t step_ = 0;
};

// Each batch finds what those before it have made of the rows, as in sync: and so at the end of
// each unit the ps have sync's rows, but for rounding.
TEST_F(WriteBackOnCuda, OfOneWorkerThePsHaveTheRowsOfSyncAtTheEndOfEachUnit) {
  for (const std::string optimizer : {"sgd", "adagrad", "row_wise_adagrad", "adam", "rmsprop"}) {
    SCOPED_TRACE(optimizer);
    for (v1::TableSpec& table : *assignment_.mutable_spec()->mutable_tables()) {
      v1::OptimizerSpec& spec = *table.mutable_optimizer();
      if (optimizer == "sgd") spec.mutable_sgd();
      if (optimizer == "adagrad") spec.mutable_adagrad();
      if (optimizer == "row_wise_adagrad") spec.mutable_row_wise_adagrad();
      if (optimizer == "adam") spec.mutable_adam()->set_epsilon(1e-3f);
      if (optimizer == "rmsprop") spec.mutable_rmsprop()->set_epsilon(1e-3f);
      spec.set_l2(0.01f);
      spec.set_clip_norm(0.05f);
    }
    std::vector<AllRows> expected;
    SetCache(0);
    Open(v1::SYNC, "cpu");
    std::vector<double> losses;
    for (const uint64_t batches : {7, 18, 25, 1}) {
      losses.push_back(Train(batches));
      expected.push_back(Rows());
    }
    for (const bool at_once : {true, false}) {
      SetCache(1 << 20);
      const double written = metrics_.card_rows_written.Value();
      Open(v1::ASYNC, card_, at_once);
      size_t unit = 0;
      for (const uint64_t batches : {7, 18, 25, 1}) {
        SCOPED_TRACE(absl::StrCat("unit ", unit));
        EXPECT_NEAR(Train(batches), losses[unit], 1e-5);
        ExpectNear(Rows(), expected[unit++], 2e-5f);
      }
      EXPECT_EQ(tables_->whole_rows, 2 * kIds) << "each row of both tables came once";
      EXPECT_EQ(tables_->pushed_rows, 0u);
      EXPECT_EQ(2 * (metrics_.card_rows_written.Value() - written), tables_->changed_rows)
          << "both tables have the keys of one key set";
    }
  }
}

// Where they are not in sync either, it trains the dense parameters, whose blocks travel at the
// ends of a unit alone, and the statistics of a batch normalisation are the worker's until then.
TEST_F(WriteBackOnCuda, OfOneWorkerTheDenseParametersAreTrainedThereToo) {
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_model()->set_name("deepfm");
  google::protobuf::Struct& options = *spec.mutable_model()->mutable_options();
  (*options.mutable_fields())["batch_norm"].set_bool_value(true);
  for (const int units : {7, 40}) {
    (*options.mutable_fields())["hidden"].mutable_list_value()->add_values()->set_number_value(
        units);
  }
  for (const std::string optimizer : {"sgd", "adagrad", "adam"}) {
    SCOPED_TRACE(optimizer);
    v1::OptimizerSpec& dense = *spec.mutable_model()->mutable_optimizer();
    dense.set_learning_rate(0.01f);
    dense.set_clip_norm(2);
    if (optimizer == "sgd") dense.mutable_sgd();
    if (optimizer == "adagrad") dense.mutable_adagrad();
    if (optimizer == "adam") dense.mutable_adam()->set_epsilon(1e-3f);
    SetCache(0);
    Open(v1::SYNC, "cpu");
    std::vector<AllRows> expected;
    for (const uint64_t batches : {7, 18}) {
      Train(batches);
      expected.push_back({tables_->Rows(0), tables_->Rows(1), tables_->Rows(2), tables_->Rows(3)});
    }
    ASSERT_EQ(expected[0][2].size(), 1u);
    ASSERT_EQ(expected[0][3].size(), 1u);
    SetCache(1 << 20);
    for (const bool at_once : {true, false}) {
      Open(v1::ASYNC, card_, at_once, v1::ASYNC);
      ASSERT_NE(context_->dense_training, nullptr);
      size_t unit = 0;
      for (const uint64_t batches : {7, 18}) {
        SCOPED_TRACE(absl::StrCat("unit ", unit));
        Train(batches);
        ExpectNear({tables_->Rows(0), tables_->Rows(1), tables_->Rows(2), tables_->Rows(3)},
                   expected[unit++], 5e-5f);
      }
      EXPECT_EQ(tables_->dense_blocks, 4u) << "two a unit";
    }
  }
}

TEST_F(WriteBackOnCuda, DenseParametersOfAnotherModelAreRefused) {
  assignment_.set_job_id("job-7");
  SetCache(1 << 20);
  Open(v1::ASYNC, card_, true, v1::ASYNC);
  ASSERT_NE(context_->dense_training, nullptr);
  const size_t floats = context_->trained.size() + 1;
  DenseBlocks before(static_cast<uint32_t>(context_->spec().tables_size()),
                     DenseLayout::Flat(floats), *context_->router);
  before.CopyIn(std::vector<float>(floats, 0.5f));
  const TableGradients push[] = {before.Write()};
  ASSERT_TRUE(context_->parameters->Push(push, {.learning_rate_scale = 1})->Wait().ok());
  const absl::Status trained = TryUnit(0, 1).status();
  EXPECT_EQ(trained.code(), absl::StatusCode::kFailedPrecondition) << trained;
  EXPECT_THAT(trained.message(), testing::HasSubstr("job job-7: block 0 of the dense parameters"));
}

TEST_F(WriteBackOnCuda, ThePsTrainDenseParametersThatTheCardCannot) {
  v1::JobSpec& spec = *assignment_.mutable_spec();
  SetCache(1 << 20);
  const auto trains = [&](v1::Consistency dense) {
    Open(v1::ASYNC, card_, true, dense);
    return context_->dense_training != nullptr;
  };
  EXPECT_TRUE(trains(v1::ASYNC));
  EXPECT_FALSE(trains(v1::SYNC));
  spec.mutable_model()->set_ema_decay(0.9f);
  EXPECT_FALSE(trains(v1::ASYNC));
  spec.mutable_model()->clear_ema_decay();
  v1::OptimizerSpec& optimizer = *spec.mutable_model()->mutable_optimizer();
  const v1::OptimizerSpec before = optimizer;
  for (const std::string& kind : KindsOfOptimizers()) {
    optimizer = OptimizerNamed(kind);
    optimizer.set_learning_rate(0.01f);
    EXPECT_EQ(trains(v1::ASYNC), !StepsByWhole(optimizer)) << kind;
  }
  optimizer = before;
  assignment_.set_workers(2);
  EXPECT_FALSE(trains(v1::ASYNC));
  assignment_.set_workers(1);
  EXPECT_TRUE(trains(v1::BOUNDED));
}

// Whatever the card has no slot for the ps trains, and what gives up its slot is written back then.
// With rates so small that gradients hardly depend on the steps before, rows end where sync's do,
// if none is lost and none counts twice.
TEST_F(WriteBackOnCuda, WithFewSlotsRowsComeAndGoAndEveryGradientCountsOnce) {
  constexpr float kRate = 1e-3f;
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_model()->mutable_optimizer()->set_learning_rate(kRate);
  for (v1::TableSpec& table : *spec.mutable_tables()) {
    table.mutable_optimizer()->set_learning_rate(kRate);
    table.mutable_optimizer()->mutable_sgd();
  }
  SetCache(0);
  Open(v1::SYNC, "cpu");
  Train(25);
  const AllRows expected = Rows();
  // 16 slots of 2 * (1 + 5) floats, of 30 rows.
  SetCache(16 * 12 * sizeof(float));
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_max_age(2);
  const double evicted = metrics_.card_rows_evicted.Value();
  for (const uint32_t workers : {1, 2}) {
    assignment_.set_workers(workers);
    for (const bool at_once : {true, false}) {
      // With nothing in sync batches overlap on the card.
      Open(v1::ASYNC, card_, at_once, at_once ? v1::ASYNC : v1::SYNC);
      for (int unit = 0; unit < 5; ++unit) Train(5);
      EXPECT_GT(tables_->pushed_rows, 50u);
      EXPECT_GT(tables_->changed_rows, 50u);
      // A sample's gradient is worth up to rate / 8 in a row of the first table.
      ExpectNear(Rows(), expected, kRate / 500);
    }
  }
  EXPECT_GT(metrics_.card_rows_evicted.Value(), evicted + 20);
}

// The rows of two batches are asked for before the batch before them is pushed. A row may have left
// in one of those, or have had no slot.
TEST_F(WriteBackOnCuda, AWholeRowIsNotAskedForBeforeItsPsHasWhatWasSentOfIt) {
  SetCache(16 * 12 * sizeof(float));
  for (const v1::Consistency dense : {v1::ASYNC, v1::SYNC}) {
    Open(v1::ASYNC, card_, /*at_once=*/true, dense, /*late_pushes=*/true);
    for (int unit = 0; unit < 10; ++unit) Train(25);
    EXPECT_GT(tables_->changed_rows, 200u);
    EXPECT_GT(tables_->pushed_rows, 200u);
    EXPECT_GT(tables_->whole_rows, 100u);
    EXPECT_EQ(tables_->asked_too_early, 0u);
  }
}

// What the card adds to a row at its ps it has made of that row: a mean of squares that decays goes
// below zero where the card began with another one.
TEST_F(WriteBackOnCuda, WithFewSlotsNoMeanOfSquaresFallsBelowZero) {
  for (const bool adam : {false, true}) {
    for (v1::TableSpec& table : *assignment_.mutable_spec()->mutable_tables()) {
      v1::OptimizerSpec& spec = *table.mutable_optimizer();
      spec.set_learning_rate(1e-3f);
      if (adam) spec.mutable_adam()->set_beta2(0.5f);
      if (!adam) spec.mutable_rmsprop()->set_decay(0.5f);
    }
    SetCache(16 * 12 * sizeof(float));
    Open(v1::ASYNC, card_, /*at_once=*/true, /*dense=*/v1::ASYNC, /*late_pushes=*/true);
    for (int unit = 0; unit < 20; ++unit) Train(25);
    EXPECT_GT(tables_->changed_rows, 400u);
    for (const size_t table : {0, 1}) {
      const size_t dim = table == 0 ? 1 : 5, squares = adam ? 2 * dim : dim;
      for (const auto& [key, row] : tables_->Rows(table)) {
        for (size_t i = squares; i < squares + dim; ++i) {
          EXPECT_GE(row[i], 0) << "table " << table << ", key " << key;
        }
      }
    }
  }
}

TEST_F(WriteBackOnCuda, ABatchWithoutSamplesForgetsNoRow) {
  SetCache(1 << 20);
  for (const bool at_once : {true, false}) {
    Open(v1::ASYNC, card_, at_once, v1::ASYNC);
    for (uint64_t first_step = 0; first_step < 3 * 27; first_step += 27) {
      v1::Train unit = Unit(0, 27);  // two of them have none
      unit.mutable_ranges(0)->set_end(kMany);
      unit.set_window_records(kMany);
      unit.set_batch_size(kBatch);
      unit.set_first_step(first_step);
      const auto result = trainer_->Train(unit);
      ASSERT_TRUE(result.ok()) << result.status();
    }
    EXPECT_EQ(tables_->whole_rows, 2 * kIds) << "each row of both tables came once";
  }
}

// Where others may train the same rows, too, a row is pulled again after max_age batches, and keeps
// what was made of it here.
TEST_F(WriteBackOnCuda, BesideOtherWorkersRowsArePulledAnewWithWhatWasMadeOfThemHere) {
  SetCache(1 << 20);
  // So long that hardly a row leaves because no batch has it: one that comes back at once sees its
  // last changes later.
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_max_age(20);
  std::vector<AllRows> rows;
  for (const uint32_t workers : {1u, 2u}) {
    assignment_.set_workers(workers);
    for (const bool at_once : {true, false}) {
      Open(v1::ASYNC, card_, at_once);
      Train(7);
      Train(18);
      Train(25);
      rows.push_back(Rows());
      if (workers == 1) {
        EXPECT_EQ(tables_->whole_rows, 2 * kIds);
      } else {
        EXPECT_GT(tables_->whole_rows, 4 * kIds);
      }
    }
  }
  // The other worker does nothing.
  for (const AllRows& of : rows) ExpectNear(of, rows[0], 2e-5f);
}

// Else what the card has of them would part from what is kept, a little with every push.
TEST_F(WriteBackOnCuda, RowsThatTheirPsRoundArePulledAnewOfOneWorkerToo) {
  SetCache(1 << 20);
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_train()->mutable_row_cache()->set_max_age(20);
  spec.mutable_tables(1)->set_row_type(v1::BFLOAT16);
  Open(v1::ASYNC, card_);
  for (int unit = 0; unit < 2; ++unit) Train(25);
  EXPECT_GT(tables_->whole_rows, 4 * kIds);
}

// However small max_age is: it has then what was pushed of it when it was pulled last.
TEST_F(WriteBackOnCuda, ARowIsNotPulledAnewBeforeItsPsHasItsLastChanges) {
  SetCache(1 << 20);
  assignment_.set_workers(2);
  for (const uint32_t max_age : {1, 2, 3}) {
    assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_max_age(max_age);
    Open(v1::ASYNC, card_, /*at_once=*/true, v1::ASYNC, /*late_pushes=*/true);
    for (int unit = 0; unit < 3; ++unit) Train(25);
    EXPECT_GT(tables_->whole_rows, 4 * kIds);
    EXPECT_EQ(tables_->asked_too_early, 0u) << max_age;
  }
}

TEST_F(WriteBackOnCuda, EvaluationsSeeWhatWasTrainedAndTrainingGoesOnFromThere) {
  const auto score = [this] {
    std::vector<float> outputs;
    Scorer scorer(context_.get());
    v1::RecordRange range = Unit(0, 1).ranges(0);
    range.set_end(kMany);
    const auto scored = scorer.Score({range}, trainer_->next_step(), [&](const auto& scores) {
      outputs.insert(outputs.end(), scores.outputs.begin(), scores.outputs.end());
      return absl::OkStatus();
    });
    EXPECT_TRUE(scored.ok()) << scored.status();
    return outputs;
  };
  SetCache(0);
  Open(v1::SYNC, "cpu");
  Train(10);
  const std::vector<float> expected = score();
  SetCache(1 << 20);
  std::vector<AllRows> rows;
  for (const bool evaluates : {false, true}) {
    Open(v1::ASYNC, card_, true, v1::ASYNC);
    Train(10);
    if (evaluates) {
      const AllRows before = Rows();
      EXPECT_THAT(score(), ::testing::Pointwise(::testing::FloatNear(1e-4f), expected));
      EXPECT_EQ(Rows(), before);
    }
    Train(15);
    rows.push_back(Rows());
  }
  ExpectNear(rows[1], rows[0], 2e-5f);
}

// The first step's gradients are beyond float16: it leaves no trace in rows that it had already.
TEST_F(WriteBackOnCuda, AStepThatIsLeftOutTrainsNoRow) {
  if (card_ != "emulated") GTEST_SKIP() << "a card need not round";
  assignment_.mutable_spec()->mutable_train()->set_precision(v1::TrainSpec::FLOAT16);
  // 2^16 * 2 * 5.4 / 8 is above 65504, and half of that is not.
  UseOneProduct("6");
  SetCache(1 << 20);
  Open(v1::ASYNC, card_);
  const double skipped = metrics_.skipped_steps.Value();
  Train(1);
  ASSERT_EQ(metrics_.skipped_steps.Value() - skipped, 1);
  const std::map<uint64_t, std::vector<float>> left_out = tables_->Rows(0);
  EXPECT_EQ(left_out.size(), kBatch);
  EXPECT_EQ(tables_->changed_rows, kBatch) << "by nothing";
  for (const auto& [key, row] : left_out) EXPECT_EQ(row[1], 0.1f) << "adagrad's first sum";
  Train(2);
  for (const auto& [key, row] : tables_->Rows(0)) EXPECT_EQ(row[1] > 0.1f, !left_out.contains(key));
}

// A ps would refuse them: the squares that an optimizer adds up would be infinite.
TEST_F(WriteBackOnCuda, GradientsThatNoOptimizerTakesFailTheStepThatMadeThem) {
  UseOneProduct("1.7e19");  // 2 * 1.7e19 / 8, times a weight of 0.5
  SetCache(1 << 20);
  for (const v1::Consistency dense : {v1::SYNC, v1::ASYNC}) {
    Open(v1::ASYNC, card_, /*at_once=*/true, dense);
    const absl::Status refused = TryUnit(0, 1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                ::testing::StartsWith("step 0: the gradient of table linear has a number that is "
                                      "not finite, or above 1e+18"));
    EXPECT_EQ(tables_->changed_rows, 0u);
  }
  assignment_.mutable_spec()->mutable_tables(0)->mutable_optimizer()->set_clip_value(1);
  Open(v1::ASYNC, card_, /*at_once=*/true, v1::ASYNC);
  EXPECT_THAT(std::string(TryUnit(0, 1).status().message()),
              ::testing::StartsWith("step 0: the gradient of the dense parameters has"));
  assignment_.mutable_spec()->mutable_model()->mutable_optimizer()->set_clip_norm(1);
  Open(v1::ASYNC, card_, /*at_once=*/true, v1::ASYNC);
  EXPECT_TRUE(TryUnit(0, 1).ok());
}

TEST_F(WriteBackOnCuda, RowsThatMightNotFitTheLastPushAreRefused) {
  // 2 GiB of changes, which two ps would not take.
  assignment_.mutable_spec()->mutable_consistency()->set_sparse(v1::ASYNC);
  SetCache(uint64_t{4} << 30);
  device_ = card_;
  const auto context = NewContext();
  EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(context.status().message()),
              ::testing::AllOf(::testing::StartsWith("train.row_cache: the rows that the card"),
                               ::testing::HasSubstr("more than the 1024 MiB that 2 ps take")));
}

}  // namespace
}  // namespace tessera::worker
