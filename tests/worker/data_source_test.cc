// Files as a job sees them: patterns, the cache, files that change, full disks, threads.
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "tests/worker/data_testing.h"
#include "worker/data/glob.h"

namespace tessera::worker {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSpec[] = R"(format: CSV
    columns { name: "y" role: LABEL } columns { name: "u" role: SPARSE })";

std::string Records(uint64_t begin, uint64_t end) {
  std::string text;
  for (uint64_t i = begin; i < end; ++i) absl::StrAppend(&text, i % 2, ",", i, "\n");
  return text;
}

std::vector<std::string> Paths(const std::vector<v1::FileRecords>& files) {
  std::vector<std::string> paths;
  for (const v1::FileRecords& file : files) paths.push_back(file.path());
  return paths;
}

// The machine's file system, which counts what is opened and can be full.
class SwitchedFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    auto file = PosixFileSystem().Create(path);
    if (!file.ok() || !full) return file;
    return std::make_unique<FullFile>();
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    return PosixFileSystem().Overwrite(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    ++opened;
    return PosixFileSystem().Open(path);
  }
  absl::Status SyncFile(const std::string& path) override {
    return PosixFileSystem().SyncFile(path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    return PosixFileSystem().CreateFolder(path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return PosixFileSystem().SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return PosixFileSystem().Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return PosixFileSystem().Link(from, to);
  }
  absl::Status Remove(const std::string& path) override { return PosixFileSystem().Remove(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return PosixFileSystem().List(folder);
  }

  std::atomic<int> opened = 0;
  std::atomic<bool> full = false;

 private:
  class FullFile final : public WritableFile {
   public:
    absl::Status Append(absl::string_view) override {
      return absl::ResourceExhaustedError("no space left on device");
    }
    absl::Status Sync() override { return absl::OkStatus(); }
    absl::Status Drain(uint64_t) override { return absl::OkStatus(); }
    absl::Status Close() override { return absl::OkStatus(); }
  };
};

TEST(DataSourceTest, PatternsExpandSortedAndWithoutRepeats) {
  DataFolder folder;
  for (const char* name : {"day2/part-1.csv", "day2/part-0.csv", "day1/part-0.csv",
                           "day1/part-10.csv", "day1/.hidden.csv", "day1/notes.txt", "a[1].csv"}) {
    folder.Write(name, Records(0, 3));
  }
  std::filesystem::create_directories(folder.root() + "/day1/part-x.csv");
  const auto source = OpenSource(folder, kSpec);
  const auto count = [&](const std::vector<std::string>& patterns) {
    auto files = source->Count(patterns);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? Paths(*files) : std::vector<std::string>();
  };
  EXPECT_THAT(count({"day*/*.csv"}), ElementsAre("day1/part-0.csv", "day1/part-10.csv",
                                                 "day2/part-0.csv", "day2/part-1.csv"));
  EXPECT_THAT(count({"day2/part-1.csv", "day[2-3]/part-?.csv", "./day2//part-1.csv"}),
              ElementsAre("day2/part-0.csv", "day2/part-1.csv"));
  EXPECT_THAT(count({folder.root() + "/day1/part-0.csv"}), ElementsAre("day1/part-0.csv"));
  EXPECT_THAT(count({"a[[]1].csv"}), ElementsAre("a[1].csv"));
}

TEST(DataSourceTest, FilesMayComeInTheOrderOfTheirPatterns) {
  DataFolder folder;
  for (const char* name : {"a.csv", "b.csv", "x/1.csv", "x/2.csv", "x/2.csv.gz"}) {
    folder.Write(name, Records(0, 3));
  }
  DataSource::Options options = folder.options();
  options.order_of_patterns = true;
  const auto source = DataSource::Open(ParseSpec(kSpec), options, PosixFileSystem());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto files = (*source)->Count({"x/2.csv", "b.csv", "?.csv", "x/?.csv", "b.csv"});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(Paths(*files), ElementsAre("x/2.csv", "b.csv", "a.csv", "x/1.csv"));
  EXPECT_THAT((*source)->Count({"x/2.csv.gz", "x/2.csv"}).status().message(),
              HasSubstr("x/2.csv and x/2.csv.gz below"));
}

TEST(DataSourceTest, AFileAndItsPackedFormAreNotReadTwice) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 3));
  folder.Write("a.csv.zst", Records(0, 3));
  auto source = OpenSource(folder, kSpec);
  const auto files = source->Count({"a.csv*"});
  EXPECT_EQ(files.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(files.status().message(), HasSubstr("a.csv and a.csv.zst below"));
}

// The master could not read a message that has it.
TEST(DataSourceTest, AFileWhoseNameIsNotUtf8IsRefused) {
  DataFolder folder;
  folder.Write("caf\xe9.csv", Records(0, 3));
  const auto files = OpenSource(folder, kSpec)->Count({"*"});
  EXPECT_EQ(files.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(files.status().message(), HasSubstr("\"caf\\xe9.csv\" below"));
}

TEST(DataSourceTest, CountsSayRecordsAndBytes) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 1000));
  folder.Write("b.csv.gz", Gzip(Records(0, 513)));
  auto files = OpenSource(folder, kSpec)->Count({"*"});
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ(files->at(0).records(), 1000u);
  EXPECT_EQ(files->at(0).bytes(), Records(0, 1000).size());
  EXPECT_EQ(files->at(1).records(), 513u);
  EXPECT_EQ(files->at(1).bytes(), Gzip(Records(0, 513)).size());
}

TEST(DataSourceTest, APatternWithoutAFileNamesWhatIsThere) {
  DataFolder folder;
  folder.Write("train.csv", Records(0, 3));
  folder.Write("sub/x.csv", Records(0, 3));
  const auto source = OpenSource(folder, kSpec);
  const struct {
    const char* pattern;
    const char* message;
  } cases[] = {{"trian.csv", "did you mean \"train.csv\"?"},
               {"*.tsv", "known are sub, train.csv"},
               {"sub/y.csv", "did you mean \"x.csv\"?"},
               {"sbu/x.csv", "did you mean \"sub\"?"},
               {"train.csv/x.csv", "no file \"train.csv/x.csv\""}};
  for (const auto& c : cases) {
    const absl::Status status = source->Count({"train.csv", c.pattern}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << c.pattern << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

// The machine's files, to be read alone; counts how often a folder is listed.
class CountingFileSystem final : public FileSystem {
 public:
  int listed() const { return listed_; }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    ++listed_;
    return PosixFileSystem().List(folder);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    return PosixFileSystem().Open(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string&) override {
    return ReadOnly();
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string&) override {
    return ReadOnly();
  }
  absl::Status SyncFile(const std::string&) override { return ReadOnly(); }
  absl::Status CreateFolder(const std::string&) override { return ReadOnly(); }
  absl::Status SyncFolder(const std::string&) override { return ReadOnly(); }
  absl::Status Rename(const std::string&, const std::string&) override { return ReadOnly(); }
  absl::Status Link(const std::string&, const std::string&) override { return ReadOnly(); }
  absl::Status Remove(const std::string&) override { return ReadOnly(); }

 private:
  static absl::Status ReadOnly() { return absl::PermissionDeniedError("read only"); }

  int listed_ = 0;
};

// With a listing for each of them, thousands of names took minutes.
TEST(DataSourceTest, FilesThatAreNamedAreFoundWithoutListingTheirFolder) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 3));
  folder.Write("sub/b.csv", Records(0, 3));
  CountingFileSystem files;
  for (const char* path : {"a.csv", "sub/b.csv"}) {
    const auto found = ExpandPattern(files, folder.root(), path);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(*found, ElementsAre(path));
  }
  EXPECT_EQ(files.listed(), 0);
}

TEST(DataSourceTest, PathsOutsideTheDataRootAreRefused) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 3));
  const auto source = OpenSource(folder, kSpec);
  for (const char* path : {"../data/../../etc/passwd", "/etc/passwd", ""}) {
    EXPECT_EQ(source->Count({path}).status().code(), StatusCode::kInvalidArgument) << path;
    v1::RecordRange range;
    range.set_path(path);
    range.set_end(1);
    EXPECT_EQ(source->Read({range}).status().code(), StatusCode::kInvalidArgument) << path;
  }
}

TEST(DataSourceTest, AFolderIsNoFile) {
  DataFolder folder;
  folder.Write("sub/a.csv", Records(0, 3));
  EXPECT_EQ(OpenSource(folder, kSpec)->Count({"sub"}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(DataSourceTest, APipeAmongTheFilesIsRefusedAndNotWaitedFor) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 3));
  ASSERT_EQ(::mkfifo((folder.root() + "/b.csv").c_str(), 0600), 0);
  const absl::Status status = OpenSource(folder, kSpec)->Count({"*.csv"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("b.csv: is a pipe, expected a regular file"));
}

TEST(DataSourceTest, RangesOfSeveralFilesComeOneAfterAnother) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 10));
  folder.Write("b.csv", Records(100, 110));
  const auto source = OpenSource(folder, kSpec);
  auto files = source->Count({"*.csv"});
  ASSERT_TRUE(files.ok());
  auto records = source->Read({Range(files->at(1), 3, 5), Range(files->at(0), 9, 10),
                               Range(files->at(0), 4, 4), Range(files->at(1), 0, 1)});
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(103, 104, 9, 100));
  EXPECT_THAT(records->batch.labels, ElementsAre(1, 0, 1, 0));
}

TEST(DataSourceTest, AReadThatThreadsShareGivesWhatOneGives) {
  DataFolder folder;
  constexpr uint64_t kMany = 60 * DataSource::kBlockRecords + 17;
  folder.Write("a.csv", Records(0, kMany));
  folder.Write("b.csv", Records(kMany, kMany + 5000) + "2,bad\n" + Records(0, 3000) + "worse\n");
  TaskPool pool(3);
  DataSource::Options options = folder.options();
  options.pool = &pool;
  options.cache_bytes = 1 << 18;  // most blocks are parsed again
  auto shared = DataSource::Open(ParseSpec(kSpec), options, PosixFileSystem());
  ASSERT_TRUE(shared.ok()) << shared.status();
  const auto alone = OpenSource(folder, kSpec);
  auto files = alone->Count({"*"});
  ASSERT_TRUE(files.ok());
  const std::vector<v1::RecordRange> ranges = {
      Range(files->at(1), 4000, 8002), Range(files->at(0), 5, kMany), Range(files->at(1), 0, 1)};
  for (int round = 0; round < 2; ++round) {
    const auto expected = alone->Read(ranges);
    const auto read = (*shared)->Read(ranges);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(read->batch.sparse[0].keys, expected->batch.sparse[0].keys);
    EXPECT_EQ(read->batch.sparse[0].offsets, expected->batch.sparse[0].offsets);
    EXPECT_EQ(read->batch.labels, expected->batch.labels);
    EXPECT_TRUE(read->batch.sparse[0].one_each);
    EXPECT_EQ(read->bad_records, 2u);
    EXPECT_EQ(read->first_bad, expected->first_bad);
    EXPECT_THAT(read->first_bad, HasSubstr("b.csv:5001"));
  }
  folder.Write("a.csv", Records(0, 10));
  EXPECT_EQ((*shared)->Read({Range(files->at(0), 0, kMany)}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(DataSourceTest, AnotherWorkersCountIsEnoughToRead) {
  DataFolder folder;
  folder.Write("a.csv.zst", Zstd(Records(0, 3000)));
  auto files = OpenSource(folder, kSpec)->Count({"*"});
  ASSERT_TRUE(files.ok());
  auto records = OpenSource(folder, kSpec)->Read({Range(files->front(), 2999, 3000)});
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(2999));
}

TEST(DataSourceTest, AFileThatChangedSinceItWasCountedIsRefused) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 5000));
  const auto source = OpenSource(folder, kSpec);
  auto files = source->Count({"a.csv"});
  ASSERT_TRUE(files.ok());
  const v1::RecordRange range = Range(files->front(), 2048, 2050);
  ASSERT_TRUE(source->Read({range}).ok());

  folder.Write("a.csv", Records(0, 4000));
  const v1::RecordRange other = Range(files->front(), 10, 20);
  const absl::Status status = source->Read({other}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.csv"));
  EXPECT_EQ(OpenSource(folder, kSpec)->Read({other}).status().code(),
            StatusCode::kFailedPrecondition);

  // Counted again, it is read as it is now: nothing comes from what was cached.
  folder.Write("a.csv", Records(7, 4000));
  auto again = source->Count({"a.csv"});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->front().records(), 3993u);
  auto records = source->Read({Range(again->front(), 2048, 2049)});
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(2055));
}

TEST(DataSourceTest, RangesBeyondTheFileAreRefused) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 10));
  const auto source = OpenSource(folder, kSpec);
  auto files = source->Count({"a.csv"});
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(source->Read({Range(files->front(), 5, 11)}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(source->Read({Range(files->front(), 6, 5)}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(DataSourceTest, LaterEpochsComeFromTheCacheWithinItsBound) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 10 * DataSource::kBlockRecords));
  SwitchedFileSystem fs;
  DataSource::Options options = folder.options();
  const auto opened_by_two_epochs = [&](uint64_t cache_bytes) {
    options.cache_bytes = cache_bytes;
    auto source = DataSource::Open(ParseSpec(kSpec), options, fs);
    EXPECT_TRUE(source.ok());
    auto files = (*source)->Count({"a.csv"});
    EXPECT_TRUE(files.ok());
    const v1::RecordRange all = Range(files->front(), 0, files->front().records());
    auto first = (*source)->Read({all});
    const int before = fs.opened;
    auto second = (*source)->Read({all});
    EXPECT_TRUE(first.ok() && second.ok());
    ExpectSameBatch(first->batch, second->batch);
    return fs.opened - before;
  };
  EXPECT_EQ(opened_by_two_epochs(64 << 20), 0);
  EXPECT_EQ(opened_by_two_epochs(0), 10);
}

TEST(DataSourceTest, TheCacheDropsWhatWasUsedLongestAgo) {
  BlockCache cache(3000);
  const auto block = [](size_t labels) {
    auto records = std::make_shared<ParsedRecords>();
    records->batch.labels.assign(labels, 1.0f);
    return BlockCache::Block(records);
  };
  const size_t floats = (1000 - sizeof(ParsedRecords)) / sizeof(float);
  cache.Insert({1, 0}, block(floats));
  cache.Insert({1, 1}, block(floats));
  cache.Insert({2, 0}, block(floats));
  EXPECT_NE(cache.Find({1, 0}), nullptr);
  cache.Insert({2, 1}, block(floats));
  EXPECT_LE(cache.bytes(), 3000u);
  EXPECT_EQ(cache.Find({1, 1}), nullptr);
  EXPECT_NE(cache.Find({1, 0}), nullptr);
  EXPECT_NE(cache.Find({2, 0}), nullptr);
  EXPECT_NE(cache.Find({2, 1}), nullptr);
  cache.Insert({3, 0}, block(10000));
  EXPECT_EQ(cache.Find({3, 0}), nullptr);
  EXPECT_NE(cache.Find({2, 1}), nullptr);
}

TEST(DataSourceTest, BadRecordsAreRememberedByTheCache) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 5) + "bad\n" + Records(6, 8) + "worse\n" + Records(9, 12));
  const auto source = OpenSource(folder, kSpec);
  auto files = source->Count({"a.csv"});
  ASSERT_TRUE(files.ok());
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto before = source->Read({Range(files->front(), 0, 5)});
    ASSERT_TRUE(before.ok());
    EXPECT_EQ(before->bad_records, 0u);
    EXPECT_EQ(before->first_bad, "");
    auto one = source->Read({Range(files->front(), 6, 10)});
    ASSERT_TRUE(one.ok());
    EXPECT_EQ(one->bad_records, 1u);
    EXPECT_EQ(one->first_bad, "a.csv:9: found 1 columns, expected 2");
    EXPECT_THAT(one->batch.sparse[0].keys, ElementsAre(6, 7, 9));
    auto both = source->Read({Range(files->front(), 5, 9)});
    ASSERT_TRUE(both.ok());
    EXPECT_EQ(both->bad_records, 2u);
    EXPECT_THAT(both->first_bad, HasSubstr("a.csv:6: "));
  }
  const auto placed = source->Read(
      {Range(files->front(), 4, 9), Range(files->front(), 8, 9), Range(files->front(), 5, 10)});
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT(placed->batch.sparse[0].keys, ElementsAre(4, 6, 7, 6, 7, 9));
  EXPECT_THAT(placed->rows_before_bad, ElementsAre(1, 3, 3, 3, 5));
}

TEST(DataSourceTest, AFullScratchFolderIsPushBackAndLeavesNothing) {
  DataFolder folder;
  folder.Write("a.csv.gz", Gzip(Records(0, 100)));
  SwitchedFileSystem fs;
  fs.full = true;
  auto source = DataSource::Open(ParseSpec(kSpec), folder.options(), fs);
  ASSERT_TRUE(source.ok());
  const absl::Status status = (*source)->Count({"a.csv.gz"}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.csv.gz"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("scratch folder"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.scratch()));
  fs.full = false;
  EXPECT_TRUE((*source)->Count({"a.csv.gz"}).ok());
}

TEST(DataSourceTest, ThreadsReadTheSameAtOnce) {
  DataFolder folder;
  folder.Write("a.csv", Records(0, 20000));
  folder.Write("b.csv.zst", Zstd(Records(20000, 40000)));
  const auto counted = OpenSource(folder, kSpec)->Count({"*"});
  ASSERT_TRUE(counted.ok());
  const auto source = OpenSource(folder, kSpec);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t begin = 0; begin < 20000; begin += 1000) {
        const v1::FileRecords& file = counted->at((t + begin / 1000) % 2);
        auto records = source->Read({Range(file, begin, begin + 1000)});
        const uint64_t first = (file.path() == "a.csv" ? 0 : 20000) + begin;
        if (records.ok() && records->batch.size == 1000 &&
            records->batch.sparse[0].keys.front() == first &&
            records->batch.sparse[0].keys.back() == first + 999) {
          ++right;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 20);
}

TEST(DataSourceTest, ReadsSeveralLabelsWeightsAndTheLastIdsOfASequence) {
  DataFolder folder;
  folder.Write("a.csv",
               "label,kind,weight,ids\n1,2,0.5,1|2|3|4\n0,3,1,5\n0,-1,1,6\n1,0,-2,7\n0,1,,8|9\n");
  DataSource::Options options = folder.options();
  options.labels = {{}, {.kind = LabelKind::kClass, .classes = 3}};
  auto source = DataSource::Open(ParseSpec(R"(
    format: CSV
    header: true
    columns { name: "ids" role: SPARSE separator: "|" pooling: SEQUENCE max_length: 3 }
    columns { name: "label" role: LABEL }
    columns { name: "kind" role: LABEL }
    columns { name: "weight" role: WEIGHT default_value: "4" })"),
                                 options, PosixFileSystem());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto records = ReadAll(**source, "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->bad_records, 3u);
  EXPECT_THAT(records->first_bad,
              ::testing::HasSubstr("\"3\" is not the number of a class; expected 0 .. 2"));
  EXPECT_THAT(records->batch.labels, ::testing::ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(records->batch.weights, ::testing::ElementsAre(0.5f, 4));
  EXPECT_THAT(records->batch.sparse[0].keys, ::testing::ElementsAre(2, 3, 4, 8, 9));
  EXPECT_THAT(records->batch.sparse[0].offsets, ::testing::ElementsAre(0, 3, 5));
  Batch second;
  const uint32_t row = 1;
  GatherRows(records->batch, {&row, 1}, &second);
  EXPECT_THAT(second.labels, ::testing::ElementsAre(0, 1));
  EXPECT_THAT(second.weights, ::testing::ElementsAre(4));
}

TEST(DataSourceTest, RealLabelsAreAnyFiniteNumbers) {
  DataFolder folder;
  folder.Write("a.csv", "-2.5,1\n1e3,2\nnan,3\nhigh,4\n");
  folder.Write("a.svm", "3.75 1:1\n-1 2:1\ninf 3:1\n");
  DataSource::Options options = folder.options();
  options.labels = {{.kind = LabelKind::kReal}};
  const auto read = [&](const char* spec, const char* name) {
    auto source = DataSource::Open(ParseSpec(spec), options, PosixFileSystem());
    EXPECT_TRUE(source.ok()) << source.status();
    auto records = ReadAll(**source, name);
    EXPECT_TRUE(records.ok()) << records.status();
    return *std::move(records);
  };
  const DataSource::Records csv = read(R"(
    format: CSV
    columns { name: "label" role: LABEL }
    columns { name: "user" role: SPARSE })",
                                       "a.csv");
  EXPECT_THAT(csv.batch.labels, ::testing::ElementsAre(-2.5f, 1000));
  EXPECT_EQ(csv.bad_records, 2u);
  EXPECT_THAT(csv.first_bad, ::testing::HasSubstr("a.csv:3: column \"label\": \"nan\""));
  const DataSource::Records svm = read(R"(
    format: LIBSVM
    columns { name: "ids" role: SPARSE index_begin: 1 index_end: 4 })",
                                       "a.svm");
  EXPECT_THAT(svm.batch.labels, ::testing::ElementsAre(3.75f, -1));
  EXPECT_THAT(svm.first_bad, ::testing::HasSubstr("a.svm:3: label: \"inf\" is not"));
}

}  // namespace
}  // namespace tessera::worker
