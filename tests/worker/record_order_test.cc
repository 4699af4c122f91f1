#include "worker/record_order.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>
#include <vector>

#include "common/math/metrics/evaluation_metrics.h"
#include "common/random.h"
#include "tests/worker/tables_ps.h"
#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

// Of records whose groups are `groups`, the first column; 0: the record has none.
Batch GroupedRecords(const std::vector<uint64_t>& groups) {
  Batch records;
  ClearBatch(1, &records);
  for (const uint64_t group : groups) {
    if (group > 0) records.sparse[0].keys.push_back(group);
    records.sparse[0].offsets.push_back(static_cast<uint32_t>(records.sparse[0].keys.size()));
    ++records.size;
  }
  return records;
}

TEST(RecordOrderTest, RunsOfEqualGroupsStayTogether) {
  std::vector<uint64_t> groups;
  std::vector<uint32_t> run_of;
  constexpr uint32_t kRuns = 300, kLongest = 6;
  for (uint32_t run = 0; run < kRuns; ++run) {
    // Groups come again further on; those of run 0, 10, .. are none.
    const uint32_t length = 1 + RandomBelow(1, run, kLongest);
    groups.insert(groups.end(), length, run % 10);
    run_of.insert(run_of.end(), length, run);
  }
  const Batch records = GroupedRecords(groups);
  const std::vector<uint32_t> order = RecordOrder(7, records, 0, kLongest);
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), records.size);
  ASSERT_EQ(order.size(), records.size);
  uint32_t borders = 0, in_order = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    borders += run_of[order[i]] != run_of[order[i - 1]];
    in_order += order[i] == order[i - 1] + 1;
  }
  EXPECT_EQ(borders, kRuns - 1);
  EXPECT_LT(in_order, records.size / 2) << "within a run, too, records are shuffled";
  EXPECT_EQ(RecordOrder(7, records, 0, kLongest), order);
  EXPECT_NE(RecordOrder(8, records, 0, kLongest), order);
  // Without groups, and where each is alone, single records are permuted.
  const std::vector<uint32_t> single = RandomPermutation(7, records.size);
  EXPECT_EQ(RecordOrder(7, records, -1, kLongest), single);
  std::iota(groups.begin(), groups.end(), 0u);
  EXPECT_EQ(RecordOrder(7, GroupedRecords(groups), 0, kLongest), single);
  EXPECT_TRUE(RecordOrder(7, GroupedRecords({}), 0, kLongest).empty());
}

TEST(RecordOrderTest, RunsThatNoBatchHoldsAreCut) {
  // Two groups of 1000: a batch of 100 is of one, the next one of either, and each is a sample of
  // its group and not of its beginning.
  std::vector<uint64_t> groups(2000, 1);
  std::fill(groups.begin() + 1000, groups.end(), 2);
  const std::vector<uint32_t> order = RecordOrder(7, GroupedRecords(groups), 0, 100);
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), groups.size());
  int changes = 0;
  for (size_t batch = 0; batch < 20; ++batch) {
    const auto begin = order.begin() + batch * 100;
    const auto [least, most] = std::minmax_element(begin, begin + 100);
    EXPECT_EQ(*least / 1000, *most / 1000) << batch;
    EXPECT_GT(*most - *least, 500u) << batch;
    changes += batch > 0 && begin[0] / 1000 != begin[-1] / 1000;
  }
  EXPECT_GT(changes, 4);
}

// Lists of five items each, of which the one with the highest number is the right one.
class RankingTest : public TrainerTest {
 protected:
  static constexpr uint64_t kLists = 500, kItems = 5, kAll = kLists * kItems;

  RankingTest() {
    std::ofstream csv(folder_ + "/train.csv");
    for (uint64_t list = 0; list < kLists; ++list) {
      std::vector<uint64_t> items;
      for (uint64_t i = 0; i < kItems; ++i) items.push_back(RandomBelow(3, list * kItems + i, 40));
      const uint64_t best = *std::max_element(items.begin(), items.end());
      for (const uint64_t item : items) csv << (item == best) << "," << item << "," << list << "\n";
    }
    csv.close();
    v1::JobSpec& spec = *assignment_.mutable_spec();
    v1::TableSpec* const of_lists = spec.add_tables();
    of_lists->set_name("lists");  // which the model leaves out
    of_lists->set_dim(1);
    for (v1::TableSpec& table : *spec.mutable_tables()) {
      table.mutable_initializer()->mutable_constant();
      table.mutable_optimizer()->set_learning_rate(0.1f);
      table.mutable_optimizer()->mutable_adagrad();
    }
    v1::ColumnSpec* const list = spec.mutable_data()->add_columns();
    list->set_name("list");
    list->set_role(v1::SPARSE);
    list->add_table("lists");
    spec.mutable_model()->set_name("layers");
    v1::LayerSpec* const layer = spec.mutable_model()->add_layers();
    layer->set_name("score");
    layer->set_op("flatten");
    layer->add_inputs("linear");
    spec.mutable_model()->set_group_by("list");
    spec.mutable_model()->mutable_optimizer()->set_learning_rate(0.1f);
    spec.mutable_model()->mutable_optimizer()->mutable_sgd();
    spec.mutable_train()->set_batch_size(kBatch);
    *assignment_.mutable_partitions() =
        NewPartitionMap(1, kPartitions, std::vector<v1::PsAddress>(2));
  }

  // After so many epochs, each a window.
  double Ndcg(uint64_t epochs) {
    auto context = NewContext();
    EXPECT_TRUE(context.ok()) << context.status();
    if (!context.ok()) return NAN;
    context_ = *std::move(context);
    context_->parameters = std::make_unique<TablesPs>(assignment_.spec(), assignment_.partitions(),
                                                      /*at_once=*/true, /*late_pushes=*/false);
    trainer_ = std::make_unique<Trainer>(context_.get(), PushProgress{});
    v1::Train unit = Unit(0, kAll / kBatch);
    unit.mutable_ranges(0)->set_end(kAll);
    unit.set_window_records(kAll);
    unit.set_batch_size(kBatch);
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      unit.set_epoch(static_cast<uint32_t>(epoch));
      unit.set_first_step(epoch * unit.batch_end());
      EXPECT_TRUE(trainer_->Train(unit).ok());
    }
    std::vector<float> outputs, labels;
    std::vector<uint64_t> groups;
    const auto append = [](const auto& part, auto* all) {
      all->insert(all->end(), part.begin(), part.end());
    };
    const auto keep = [&](const Scorer::Scores& scores) {
      append(scores.outputs, &outputs);
      append(scores.labels, &labels);
      append(scores.groups, &groups);
      return absl::OkStatus();
    };
    EXPECT_TRUE(Scorer(context_.get()).Score({unit.ranges(0)}, 0, keep).ok());
    return math::ComputeMetrics({"ndcg@3"}, {.outputs = outputs,
                                             .labels = labels,
                                             .groups = groups,
                                             .kind = math::Outputs::kGradedRanks})
        .at("ndcg@3");
  }

  static constexpr uint64_t kBatch = 25;
};

TEST_F(RankingTest, RecordsOfAGroupMeetInABatch) {
  for (const v1::Loss loss : {v1::LISTWISE_SOFTMAX, v1::BAYESIAN_PERSONALIZED_RANKING}) {
    SCOPED_TRACE(v1::Loss_Name(loss));
    assignment_.mutable_spec()->mutable_model()->set_loss(loss);
    EXPECT_LT(Ndcg(0), 0.5);
    EXPECT_GT(Ndcg(2), 0.95);  // with single records shuffled, 0.79
  }
}

}  // namespace
}  // namespace tessera::worker
