// Real files, where the machine has them: too large or not ours to keep in the repository.
#include <algorithm>
#include <cmath>

#include "common/job/string_key.h"
#include "common/random.h"
#include "tests/paths.h"
#include "tests/worker/data_testing.h"

namespace tessera::worker {
namespace {

class DataRealFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Beside the repository; never part of it.
    root_ = SourcePath("../shared/data");
    if (!std::filesystem::exists(root_)) {
      GTEST_SKIP() << "there are no real data sets in " << root_;
    }
  }

  // Reads the whole file, and checks what must hold of every batch.
  Batch Read(const std::string& spec, const std::string& file, uint64_t records) {
    DataFolder folder;
    DataSource::Options options = folder.options();
    options.data_root = root_.string();
    auto source = DataSource::Open(ParseSpec(spec), options, PosixFileSystem());
    EXPECT_TRUE(source.ok()) << source.status();
    auto files = (*source)->Count({file});
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return {};
    EXPECT_EQ(files->front().records(), records);
    auto read = (*source)->Read({Range(files->front(), 0, files->front().records())});
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) return {};
    EXPECT_EQ(read->bad_records, 0u) << read->first_bad;
    const Batch& batch = read->batch;
    EXPECT_EQ(batch.size, records);
    EXPECT_EQ(batch.labels.size(), records);
    EXPECT_EQ(batch.dense.size(), records * (*source)->schema().dense_width);
    for (const SparseColumn& column : batch.sparse) {
      EXPECT_EQ(column.offsets.size(), records + 1);
      EXPECT_EQ(column.offsets.back(), column.keys.size());
    }
    return std::move(read->batch);
  }

  std::filesystem::path root_;
};

uint64_t Positives(const Batch& batch) {
  return static_cast<uint64_t>(std::count(batch.labels.begin(), batch.labels.end(), 1.0f));
}

TEST_F(DataRealFilesTest, Frappe) {
  std::string spec = "format: CSV header: true columns { name: 'label' role: LABEL }";
  for (const char* name : {"user", "item", "daytime", "weekday", "isweekend", "homework", "cost",
                           "weather", "country", "city"}) {
    absl::StrAppend(&spec, " columns { name: '", name, "' role: SPARSE }");
  }
  const Batch train = Read(spec, "frappe/train.csv.zst", 202027);
  ASSERT_EQ(train.sparse.size(), 10u);
  for (const SparseColumn& column : train.sparse) {
    ASSERT_EQ(column.keys.size(), 202027u);
    EXPECT_LT(*std::max_element(column.keys.begin(), column.keys.end()), 5382u);
  }
  EXPECT_EQ(train.sparse[0].keys.front(), 16u);
  EXPECT_EQ(train.sparse[9].keys.front(), 5156u);
  EXPECT_NEAR(static_cast<double>(Positives(train)) / train.size, 1.0 / 3, 0.01);

  const Batch valid = Read(spec, "frappe/valid.csv.zst", 57722);
  EXPECT_NEAR(static_cast<double>(Positives(valid)) / valid.size, 1.0 / 3, 0.01);
}

TEST_F(DataRealFilesTest, Criteo) {
  std::string spec = "format: TSV columns { name: 'label' role: LABEL }";
  for (int i = 1; i <= 13; ++i) {
    absl::StrAppend(&spec, " columns { name: 'I", i, "' role: DENSE default_value: '0' ",
                    "transform: LOG1P }");
  }
  for (int i = 1; i <= 26; ++i) {
    absl::StrAppend(&spec, " columns { name: 'C", i, "' role: SPARSE type: STRING }");
  }
  const Batch train = Read(spec, "criteo_8k/train.tsv.zst", 7200);
  ASSERT_EQ(train.dense_width(), 13u);
  EXPECT_FLOAT_EQ(train.dense[0], std::log1p(1.0f));
  // The first row ends with eight categories; some later ones miss some.
  EXPECT_EQ(train.sparse[0].keys.front(), StringKey(NameHash("C1"), "68fd1e64"));
  EXPECT_LT(train.sparse[25].keys.size(), 7200u);
  EXPECT_EQ(train.sparse[8].keys.size(), 7200u);
  Read(spec, "criteo_8k/dev.tsv.zst", 409);
  Read(spec, "criteo_8k/test.tsv.zst", 391);
}

TEST_F(DataRealFilesTest, Avazu) {
  std::string columns =
      "columns { name: 'id' role: IGNORED } columns { name: 'click' role: LABEL }";
  for (const char* name : {"hour",         "C1",
                           "banner_pos",   "site_id",
                           "site_domain",  "site_category",
                           "app_id",       "app_domain",
                           "app_category", "device_id",
                           "device_ip",    "device_model",
                           "device_type",  "device_conn_type",
                           "C14",          "C15",
                           "C16",          "C17",
                           "C18",          "C19",
                           "C20",          "C21"}) {
    absl::StrAppend(&columns, " columns { name: '", name, "' role: SPARSE type: STRING }");
  }
  const Batch train = Read("format: CSV header: true " + columns, "avazu_9k/train.csv.zst", 8087);
  ASSERT_EQ(train.sparse.size(), 22u);
  EXPECT_EQ(train.sparse[20].keys.front(), StringKey(NameHash("C20"), "100084"));
  // Only the training file has a header.
  Read("format: CSV " + columns, "avazu_9k/dev.csv.zst", 480);
  Read("format: CSV " + columns, "avazu_9k/test.csv.zst", 432);
}

}  // namespace
}  // namespace tessera::worker
