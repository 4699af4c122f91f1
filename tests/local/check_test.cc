#include "local/check.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/folder.h"
#include "tests/worker/data_testing.h"

namespace tessera::local {
namespace {

using testing::HasSubstr;

constexpr char kJob[] = R"(name: clicks
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: price, role: dense}
    - {name: user, role: sparse, table: [linear, emb]}
    - {name: item, role: sparse, table: [linear, emb]}
  train: {files: train.csv}
tables:
  - name: linear
    dim: 1
    initializer: {constant: {value: 0}}
    optimizer: {learning_rate: 0.1, sgd: {}}
  - name: emb
    dim: 8
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.001, adam: {}}
model:
  name: deepfm
  options: {hidden: [16]}
  optimizer: {learning_rate: 0.001, adam: {}}
train: {batch_size: 64, epochs: 1}
)";

LoadedJob Job(const std::string& from = "", const std::string& to = "") {
  std::string text = kJob;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  absl::StatusOr<LoadedJob> job = ParseJobYaml(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *std::move(job);
}

TEST(CheckJob, EstimatesTheMemoryOfEachProcess) {
  CheckOptions options;
  options.keys = 1000000;
  const auto report = CheckJob(Job(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  // MLP: (2*8 + 1) * 16 + 16, then 16 + 1; linear part of the dense feature: 1 + 1.
  EXPECT_EQ(report->memory.dense_floats, 17u * 16 + 16 + 16 + 1 + 2);
  ASSERT_EQ(report->memory.tables.size(), 2u);
  EXPECT_EQ(report->memory.tables[0].slot_floats, 0u);
  EXPECT_EQ(report->memory.tables[1].slot_floats, 17u);
  EXPECT_EQ(report->memory.tables[0].row_bytes, 8 + 32u) << "a number, padded";
  EXPECT_EQ(report->memory.tables[1].row_bytes, (8 + 17) * 4 + 4 + 32u);
  EXPECT_EQ(report->memory.batch_message_bytes, 64u * 2 * ((1 + 8) * 4 + 2 * 8));
  EXPECT_GT(report->memory.ps_bytes, 1000000u * (40 + 136));
  options.ps = 4;
  EXPECT_LT(CheckJob(Job(), options)->memory.ps_bytes, report->memory.ps_bytes);
  EXPECT_THAT(report->model, HasSubstr("mlp/1"));
  options.ps = 1;
  options.keys = 0;
  const auto empty = CheckJob(Job(), options);
  ASSERT_TRUE(empty.ok()) << empty.status();
  // 400 tables of 31 rows each took a ps 226 MB more than one did: 155 bytes a partition.
  EXPECT_GT(empty->memory.ps_bytes, (uint64_t{64} << 20) + 2 * 4096 * 155);
  EXPECT_LT(empty->memory.ps_bytes, (uint64_t{64} << 20) + 2 * 4096 * 300);
}

TEST(CheckJob, EstimatesACardsMemoryApartFromItsMachines) {
  const std::string layers = "{hidden: [16]}\n  optimizer: {learning_rate: 0.001, adam: {}}\n";
  const auto memory = [&](int hidden, const std::string& train) {
    CheckOptions options;
    options.keys = 1000;
    const std::string wider = absl::StrReplaceAll(layers, {{"16", absl::StrCat(hidden)}});
    const auto report = CheckJob(
        Job(layers + "train: {batch_size: 64", wider + "train: {batch_size: 65536" + train),
        options);
    EXPECT_TRUE(report.ok()) << report.status();
    return report->memory;
  };
  const auto floats = [](uint64_t n) { return n * sizeof(float); };
  EXPECT_EQ(memory(16, ", device: cpu").card_bytes, 0);
  const MemoryEstimate card = memory(16, ", device: cuda");
  // At least values and gradients of 16 units, the workspace, and rows of 2 columns' tables thrice.
  const uint64_t rows = 65536u * 2 * ((1 + 8) * 4 + 2 * 8);
  EXPECT_GT(card.card_bytes, floats(65536u * 16 * 2 + (8 << 20)) + 3 * rows);
  EXPECT_LT(card.card_bytes, floats(65536u * 16 * 16 + (8 << 20)) + 5 * rows);

  const std::string cached = ", device: cuda, row_cache: ";
  EXPECT_EQ(memory(16, cached + "{bytes: 1000000}").card_bytes, card.card_bytes + 1000000);
  EXPECT_EQ(memory(16, cached + "{share: 0.5}").card_bytes, card.card_bytes + 500 * floats(1 + 8));

  // A wider layer's values are in the card's memory; the machine has its parameters five times.
  const MemoryEstimate wide = memory(512, ", device: cuda");
  EXPECT_GT(wide.card_bytes, card.card_bytes + floats(65536u * 496));
  EXPECT_EQ(wide.worker_bytes - card.worker_bytes,
            5 * floats(wide.dense_floats - card.dense_floats));
}

TEST(CheckJob, NamesTheLineOfAWrongModel) {
  const auto message = [](const LoadedJob& job) {
    return std::string(CheckJob(job, {}).status().message());
  };
  EXPECT_THAT(message(Job("name: deepfm", "name: deepfn")),
              testing::StartsWith("job.yaml:21: model.name: unknown model \"deepfn\""));
  EXPECT_THAT(message(Job("{hidden: [16]}", "{hiden: [16]}")),
              testing::StartsWith("job.yaml:22: model.options.hiden: "));
  EXPECT_THAT(message(Job("{hidden: [16]}", "{dropout: 2}")),
              testing::StartsWith("job.yaml:22: model.options.dropout: "));
  EXPECT_THAT(
      message(Job("name: linear\n    dim: 1", "name: linear\n    dim: 2")),
      testing::StartsWith("job.yaml:21: model.name: model \"deepfm\": its linear part reads"));
  EXPECT_THAT(message(Job("name: deepfm\n  options: {hidden: [16]}",
                          "name: layers\n  layers: [{name: o, op: linear, inputs: price, options: "
                          "{units: 3}}]")),
              testing::StartsWith("job.yaml:20: model: the model's output \"o\" has the shape "
                                  "[batch, 3], expected [batch, 1], one logit a sample (several "));
  EXPECT_THAT(message(Job("batch_size: 64", "batch_size: 0")),
              testing::StartsWith("job.yaml:24: train.batch_size: "));
}

TEST(CheckJob, OpensTheFilesOfTheData) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  const absl::Status missing = CheckJob(Job(), options).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              testing::StartsWith("job.yaml:10: data.train.files[0]: "));

  folder.Write("train.csv", "label,price,user,item\n1,0.5,3,4\n0,0.25,5,6\n");
  const auto report = CheckJob(Job(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->splits[0].files, testing::ElementsAre("train.csv"));

  folder.Write("train.csv", "label,price,user,itm\n1,0.5,3,4\n");
  EXPECT_THAT(std::string(CheckJob(Job(), options).status().message()), HasSubstr("item"));
  folder.Write("train.csv", "label,price,user,item\nx,0.5,3,4\n");
  EXPECT_THAT(std::string(CheckJob(Job(), options).status().message()),
              HasSubstr("none of the first 1 records can be read: "));
  folder.Write("train.csv", "label,price,user,item\n1,,3,4\n0,0.25,5,6\n1,,3,4\n");
  EXPECT_THAT(
      std::string(CheckJob(Job(), options).status().message()),
      testing::AllOf(
          testing::StartsWith("job.yaml:10: data.train.files[0]: 2 of the first 3 records cannot "
                              "be read, and data.max_bad_records allows 0; the first: "),
          HasSubstr("column \"price\": is empty")));
  EXPECT_TRUE(
      CheckJob(Job("  header: true", "  header: true\n  max_bad_records: 2"), options).ok());
  options.data_root = folder / "none";
  EXPECT_EQ(CheckJob(Job(), options).status().code(), absl::StatusCode::kNotFound);
}

TEST(CheckJob, EstimatesByWhatTheFilesHold) {
  Folder folder;
  CheckOptions options;
  const LoadedJob job =
      Job("name: item, role: sparse,", "name: item, role: sparse, separator: \"|\",");
  const auto unseen = CheckJob(job, options);
  ASSERT_TRUE(unseen.ok()) << unseen.status();
  const uint64_t one_each = 64u * ((1 + 8) * 4 + 2 * 8);  // rows of both tables for one column
  EXPECT_EQ(unseen->memory.batch_message_bytes, 2 * one_each);
  EXPECT_EQ(unseen->memory.window_bytes, 2u * 262144 * (2 * 4 + 2 * (8 + 4)));
  options.data_root = folder / ".";
  folder.Write("train.csv", "label,price,user,item\n1,0.5,3,4|5|6|7\n0,0.25,5,6|9\n");
  const auto seen = CheckJob(job, options);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->memory.batch_message_bytes, (1 + 3) * one_each);
  EXPECT_EQ(seen->memory.window_bytes, 2u * (2 * 4 + 2 * 4 + (1 + 3) * 8));
  EXPECT_THAT(seen->warnings, testing::IsEmpty());

  std::string long_bags = "label,price,user,item\n1,0.5,3,0";
  for (int i = 1; i < 400000; ++i) absl::StrAppend(&long_bags, "|", i % 10);
  folder.Write("train.csv", long_bags + "\n");
  const auto large = CheckJob(job, options);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_THAT(large->warnings,
              testing::ElementsAre(testing::AllOf(HasSubstr("the rows of 64 samples take 1269 MiB"),
                                                  HasSubstr("if no id comes twice in them"))));
}

TEST(CheckJob, LooksAtAllFilesOfASplitAtOnceAsWorkersDo) {
  Folder folder;
  const std::string text = "label,price,user,item\n1,0.5,3,4\n0,0.25,5,6\n";
  folder.Write("day-1.csv", text);
  folder.Write("day[2].csv", text);
  folder.Write("day-1.csv.gz", worker::Gzip(text));
  CheckOptions options;
  options.data_root = folder / ".";
  const LoadedJob job = Job("files: train.csv", "files: [day-1.csv, day-1.csv.gz]");
  EXPECT_THAT(std::string(CheckJob(job, options).status().message()),
              testing::AllOf(testing::StartsWith("job.yaml:10: data.train.files: day-1.csv and "
                                                 "day-1.csv.gz below the data root "),
                             HasSubstr(" look like one file, plain and packed")));
  folder.Write("day-1.csv.zst", worker::Zstd(text));
  EXPECT_THAT(
      std::string(CheckJob(Job("files: train.csv", "files: [day-1.csv.gz, day-1.csv.zst]"), options)
                      .status()
                      .message()),
      testing::AllOf(HasSubstr("data.train.files: day-1.csv.gz and day-1.csv.zst below "),
                     HasSubstr(" look like one file, packed in two ways")));
  const auto report = CheckJob(Job("files: train.csv", "files: [day-1.csv, day*.csv]"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->splits[0].files, testing::ElementsAre("day-1.csv", "day[2].csv"));
}

TEST(CheckJob, SaysWhetherSoManyWorkersMayTrainIt) {
  const auto message = [](const LoadedJob& job, uint32_t workers, uint32_t ps = 1) {
    CheckOptions options;
    options.workers = workers;
    options.ps = ps;
    return std::string(CheckJob(job, options).status().message());
  };
  const LoadedJob small = Job("batch_size: 64", "batch_size: 2");
  EXPECT_EQ(message(small, 2), "");
  EXPECT_THAT(message(small, 4),
              testing::StartsWith("job.yaml: workers: 4 workers cannot share a batch"));
  const LoadedJob write_back =
      Job("train: {batch_size: 64,",
          "consistency: {sparse: async}\n"
          "train: {row_cache: {bytes: 1000000, write_back: true}, batch_size: 64,");
  EXPECT_EQ(message(write_back, 1), "");
  EXPECT_THAT(message(write_back, 4),
              testing::StartsWith("job.yaml: workers: found 4, expected 1: "));
  EXPECT_THAT(message(Job(), 1, 2000),
              testing::StartsWith("job.yaml: ps: found 2000, expected at most "));
}

TEST(CheckModel, ChecksNothingOfHowManyTrainIt) {
  const LoadedJob large = Job("batch_size: 64", "batch_size: 16777216");
  EXPECT_FALSE(CheckJob(large, {}).ok());
  const auto warnings = CheckModel(large);
  ASSERT_TRUE(warnings.ok()) << warnings.status();
  EXPECT_THAT(*warnings, testing::IsEmpty());
  EXPECT_THAT(std::string(CheckModel(Job("{hidden: [16]}", "{hiden: [16]}")).status().message()),
              testing::StartsWith("job.yaml:22: model.options.hiden: "));
}

TEST(CheckJob, WarnsOfGroupsThatDoNotStandTogether) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  const LoadedJob ranks =
      Job("  name: deepfm", "  name: deepfm\n  loss: listwise_softmax\n  group_by: user");
  std::string sorted = "label,price,user,item\n", scattered = sorted;
  for (int i = 0; i < 1200; ++i) {
    absl::StrAppend(&sorted, i % 4 == 0, ",1,", i / 4, ",", i % 7, "\n");
    absl::StrAppend(&scattered, i % 4 == 0, ",1,", i % 300, ",", i % 7, "\n");
  }
  folder.Write("train.csv", sorted);
  EXPECT_THAT(CheckJob(ranks, options)->warnings, testing::IsEmpty());
  folder.Write("train.csv", scattered);
  EXPECT_THAT(CheckJob(ranks, options)->warnings,
              testing::ElementsAre(HasSubstr("next to others of their user (model.group_by)")));
  EXPECT_THAT(CheckJob(Job(), options)->warnings, testing::IsEmpty());
}

TEST(CheckJob, WarnsOfColumnsThatNothingReads) {
  const auto warnings = [](const LoadedJob& job) {
    const auto report = CheckJob(job, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->warnings : std::vector<std::string>();
  };
  const auto layers = [](const std::string& list) {
    return Job("  name: deepfm\n  options: {hidden: [16]}", "  name: layers\n  layers: " + list);
  };
  EXPECT_THAT(warnings(Job()), testing::IsEmpty());
  EXPECT_THAT(
      warnings(Job("item, role: sparse,",
                   "item, role: sparse, separator: \"|\", pooling: sequence, max_length: 9,")),
      testing::ElementsAre(testing::StartsWith(
          "data.columns: column item is read by nothing in the model; its pooling is sequence")));
  // Of a table and of the dense columns, layers may cut out single columns.
  EXPECT_THAT(warnings(layers("[{name: x, op: linear, inputs: user.emb, options: {units: 1}}]")),
              testing::ElementsAre("data.columns: column price is read by nothing in the model",
                                   "data.columns: column item is read by nothing in the model"));
  EXPECT_THAT(warnings(layers("[{name: x, op: linear, inputs: price, options: {units: 1}},"
                              " {name: all, op: flatten, inputs: emb},"
                              " {name: y, op: linear, inputs: all, options: {units: 1}},"
                              " {name: z, op: add, inputs: [x, y]}]")),
              testing::IsEmpty());
}

// A history of strings beside the numbers of its items, for DIN.
LoadedJob Behaviour(const std::string& from = "", const std::string& to = "") {
  std::string text = R"(name: clicks
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: item, role: sparse, table: emb}
    - {name: shop, role: sparse, table: emb, type: string}
    - {name: items, role: sparse, table: emb, separator: "|", pooling: sequence, max_length: 4}
    - {name: shops, role: sparse, table: emb, type: string, key_space: shop, separator: ";",
       pooling: sequence, max_length: 4}
  train: {files: train.csv}
tables:
  - {name: emb, dim: 2, initializer: {constant: {value: 0}}, optimizer: {learning_rate: 1, sgd: {}}}
model:
  name: din
  options: {sequence: [items, shops], target: [item, shop]}
  optimizer: {learning_rate: 0.001, adam: {}}
train: {batch_size: 64, epochs: 1}
)";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  absl::StatusOr<LoadedJob> job = ParseJobYaml(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *std::move(job);
}

TEST(CheckJob, WarnsOfSequencesWhoseTargetsHaveOtherKeys) {
  EXPECT_THAT(CheckJob(Behaviour(), {})->warnings, testing::IsEmpty());
  EXPECT_THAT(CheckJob(Behaviour("key_space: shop, ", ""), {})->warnings,
              testing::ElementsAre(
                  "model.options.sequence: the ids of shops are strings of the key space shops, "
                  "those of its target shop strings of the key space shop, and equal ids have "
                  "different rows; give shops key_space: shop"));
  EXPECT_THAT(
      CheckJob(Behaviour("item, role: sparse,", "item, role: sparse, type: string,"), {})->warnings,
      testing::ElementsAre(testing::AllOf(HasSubstr("the ids of items are numbers, "),
                                          HasSubstr("give both columns one type"))));
}

TEST(CheckJob, WarnsOfNegativesThatHaveOtherKeysThanTheirSequences) {
  const auto warnings = [](const std::string& key_space) {
    LoadedJob job = Behaviour("din", "dien");
    v1::ColumnSpec* const others = job.spec.mutable_data()->add_columns();
    *others = job.spec.data().columns(4);
    others->set_name("others");
    others->set_key_space(key_space);
    auto& options = *job.spec.mutable_model()->mutable_options()->mutable_fields();
    options["sequence"].set_string_value("shops");
    options["target"].set_string_value("shop");
    options["negative"].set_string_value("others");
    options["auxiliary"].set_number_value(1);
    const auto report = CheckJob(job, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->warnings : std::vector<std::string>();
  };
  EXPECT_THAT(warnings("shop"), testing::Not(testing::Contains(HasSubstr("negative"))));
  EXPECT_THAT(
      warnings(""),
      testing::Contains("model.options.negative: the ids of others are strings of the key space "
                        "others, those of its sequence shops strings of the key space shop, and "
                        "equal ids have different rows; give others key_space: shop"));
}

TEST(CheckJob, WarnsOfSequencesOfLibsvmFilesWhichNoOtherColumnMeets) {
  const auto warnings = [](const std::string& item) {
    absl::StatusOr<LoadedJob> job = ParseJobYaml(R"(name: clicks
data:
  format: libsvm
  columns:
    - {name: items, role: sparse, table: emb, pooling: sequence, max_length: 4, index_begin: 1,
       index_end: 101}
    - {name: item, role: sparse, table: emb, )" + item +
                                                     R"(}
  train: {files: train.txt}
tables:
  - {name: emb, dim: 2, initializer: {constant: {value: 0}}, optimizer: {learning_rate: 1, sgd: {}}}
model:
  name: din
  options: {sequence: items, target: item}
  optimizer: {learning_rate: 0.001, adam: {}}
train: {batch_size: 64, epochs: 1}
)",
                                                 "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    const auto report = CheckJob(*job, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->warnings : std::vector<std::string>();
  };
  EXPECT_THAT(warnings("index_begin: 101, index_end: 201"),
              testing::ElementsAre(
                  "model.options.sequence: the ids of items are numbers in [1, 101), those of its "
                  "target item numbers in [101, 201), and equal ids have different rows; no two "
                  "columns of libsvm files have an id in common: use csv or tsv"));
  EXPECT_THAT(warnings("qid: true"), testing::IsEmpty());
}

TEST(CheckJob, WarnsOfSequencesThatTheFilesHaveNot) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  const auto write = [&](int records, const std::string& shops, const std::string& last) {
    std::string text = "label,item,shop,items,shops\n";
    for (int i = 1; i < records; ++i) absl::StrAppend(&text, i % 2, ",1,a,1|2|3,", shops, "\n");
    folder.Write("train.csv", absl::StrCat(text, "0,1,a,", last, "\n"));
  };
  const auto warnings = [&] {
    const auto report = CheckJob(Behaviour(), options);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->warnings : std::vector<std::string>();
  };
  // Of longer sequences the last 4 count.
  write(101, "a;b;c", "1|2|3|4|5,a;b;c;d");
  EXPECT_THAT(warnings(), testing::IsEmpty());
  write(101, "a;b;c", "1|2|3,a;;c");
  EXPECT_THAT(warnings(), testing::ElementsAre(HasSubstr(
                              "items and shops are read place by place, and in 1 of the first 101 "
                              "records they have different numbers of ids")));
  // One id each may be chance among few records.
  write(99, "a b c", ",");
  EXPECT_THAT(warnings(), testing::ElementsAre(HasSubstr("items and shops")));
  write(101, "a b c", ",");
  EXPECT_THAT(warnings(), testing::ElementsAre(
                              HasSubstr("column shops has never more than one id in the first 100 "
                                        "records that have any; does ';' part them (separator)?"),
                              HasSubstr("items and shops")));
}

TEST(CheckJob, WarnsOfNumbersThatAreTooLarge) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  folder.Write("train.csv", "label,price,user,item\n1,1e6,3,4\n0,-3.5,5,6\n");
  EXPECT_THAT(CheckJob(Job(), options)->warnings, testing::IsEmpty());
  folder.Write("train.csv", "label,price,user,item\n1,1,3,4\n0,-1700000000,5,6\n");
  EXPECT_THAT(
      CheckJob(Job(), options)->warnings,
      testing::ElementsAre("data.columns: column price has numbers as large as 1.7e+09, which "
                           "the model takes as they are; scale them in the data, or give the "
                           "column transform: log1p"));
  const LoadedJob log = Job("price, role: dense", "price, role: dense, transform: log1p");
  EXPECT_THAT(CheckJob(log, options)->warnings, testing::IsEmpty());
}

TEST(CheckJob, WarnsOfLabelsThatAreAllMissing) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  const LoadedJob job = Job("label, role: label", "label, role: label, missing_value: \"-1\"");
  folder.Write("train.csv", "label,price,user,item\n,1,3,4\n1,1,5,6\n");
  EXPECT_THAT(CheckJob(job, options)->warnings, testing::IsEmpty());
  folder.Write("train.csv", "label,price,user,item\n-1,1,3,4\n,1,5,6\n");
  EXPECT_THAT(
      CheckJob(job, options)->warnings,
      testing::ElementsAre("data.columns: column label has no label in the first 2 records; "
                           "is it meant to be missing where it is '-1' (missing_value)?"));
}

TEST(CheckJob, SeesTheQueriesOfLibsvm) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  absl::StatusOr<LoadedJob> job = ParseJobYaml(R"(name: queries
data:
  format: libsvm
  columns:
    - {name: query, role: sparse, qid: true}
    - {name: features, role: dense, index_begin: 1, index_end: 3}
  train: {files: train.svm}
model:
  name: dnn
  loss: listwise_softmax
  group_by: query
  optimizer: {learning_rate: 0.001, adam: {}}
train: {batch_size: 64, epochs: 1}
)",
                                               "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto write = [&](int queries, const std::string& last) {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      absl::StrAppend(&text, i % 3, " qid:", queries == 0 ? i / 4 : i % queries, " 1:0.5 2:1\n");
    }
    folder.Write("train.svm", text + last);
  };
  write(0, "");
  auto report = CheckJob(*job, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->warnings, testing::IsEmpty());
  write(100, "");
  EXPECT_THAT(CheckJob(*job, options)->warnings,
              testing::ElementsAre(HasSubstr("next to others of their query (model.group_by)")));
  write(0, "1 1:0.5\n");
  EXPECT_THAT(std::string(CheckJob(*job, options).status().message()),
              HasSubstr("train.svm:401: column \"query\": \"1:0.5\" stands behind the label; "
                        "expected qid:N, as the column has qid"));
}

TEST(CheckJob, WarnsOfFilesThatAreTrainedAndMeasured) {
  Folder folder;
  CheckOptions options;
  options.data_root = folder / ".";
  for (const char* name : {"a.csv", "b.csv", "c.csv"}) {
    folder.Write(name, "label,price,user,item\n1,1,3,4\n");
  }
  const auto warnings = [&](const std::string& splits) {
    return CheckJob(Job("  train: {files: train.csv}", splits), options)->warnings;
  };
  EXPECT_THAT(warnings("  train: {files: a.csv}\n  validation: {files: b.csv}\n"
                       "  test: {files: b.csv}"),
              testing::IsEmpty());
  EXPECT_THAT(warnings("  train: {files: '*.csv'}\n  validation: {files: b.csv}\n"
                       "  test: {files: [b.csv, c.csv]}"),
              testing::ElementsAre("data.validation.files: b.csv is a file of data.train, too",
                                   "data.test.files: b.csv is a file of data.train, too",
                                   "data.test.files: c.csv is a file of data.train, too"));
}

TEST(CheckJob, ListsTheModelsOptionsAndLayers) {
  const auto report = CheckJob(Job(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, const worker::OptionValue*> options;
  for (const worker::OptionValue& option : report->options) {
    EXPECT_TRUE(options.emplace(option.name, &option).second) << option.name << " is there twice";
  }
  ASSERT_EQ(options.size(), 6u);
  EXPECT_TRUE(options.at("hidden")->is_set);
  EXPECT_EQ(options.at("hidden")->value.list_value().values(0).number_value(), 16);
  EXPECT_FALSE(options.at("activation")->is_set);
  EXPECT_EQ(options.at("activation")->value.string_value(), "relu");
  EXPECT_EQ(options.at("linear_table")->value.string_value(), "linear");
  EXPECT_EQ(options.at("batch_norm")->value.kind_case(), google::protobuf::Value::kBoolValue);
  EXPECT_EQ(options.at("dropout")->value.number_value(), 0);
  EXPECT_EQ(options.at("init")->value.string_value(), "xavier_normal");
  uint64_t floats = 0;
  for (const worker::Graph::Layer& layer : report->layers) floats += layer.trained_floats;
  EXPECT_EQ(floats, report->memory.dense_floats);
}

}  // namespace
}  // namespace tessera::local
