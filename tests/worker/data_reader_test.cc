// What readers make of well-formed files: formats, line ends, packing, ranges.
#include <cmath>

#include "absl/strings/str_replace.h"
#include "common/hash.h"
#include "common/job/string_key.h"
#include "common/random.h"
#include "tests/worker/data_testing.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr char kCsv[] = R"(
  format: CSV header: true
  columns { name: "label" role: LABEL }
  columns { name: "age" role: DENSE }
  columns { name: "user" role: SPARSE }
  columns { name: "tags" role: SPARSE type: STRING separator: "|" })";

TEST(DataReaderTest, CsvColumnsAreMatchedByTheirNames) {
  DataFolder folder;
  folder.Write("a.csv",
               "tags,extra,user,label,age\n"
               "x|y,?,42,1,2.5\n"
               "y,?,9223372036854775807,0, -1e2 \n");
  auto records = ReadAll(*OpenSource(folder, kCsv), "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->bad_records, 0u);
  EXPECT_EQ(records->batch.size, 2u);
  EXPECT_THAT(records->batch.labels, ElementsAre(1, 0));
  EXPECT_THAT(records->batch.dense, ElementsAre(2.5f, -100.0f));
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(42, kMaxIntegerKey));
  const uint64_t space = NameHash("tags");
  const uint64_t x = MixPair(space, NameHash("x"));
  const uint64_t y = MixPair(space, NameHash("y"));
  EXPECT_THAT(records->batch.sparse[1].keys, ElementsAre(x, y, y));
  EXPECT_THAT(records->batch.sparse[1].offsets, ElementsAre(0, 2, 3));
}

TEST(DataReaderTest, LabelsAndWeightsMayLackWhereTheyAreToBePredicted) {
  constexpr char kWeighted[] = R"(
    format: CSV header: true
    columns { name: "label" role: LABEL }
    columns { name: "weight" role: WEIGHT }
    columns { name: "age" role: DENSE })";
  DataFolder folder;
  folder.Write("neither.csv", "age\n1\n2\n");
  folder.Write("some.csv", "weight,label,age\n3,,1\n,1,2\n,x,3\n");
  EXPECT_FALSE(ReadAll(*OpenSource(folder, kWeighted), "neither.csv").ok());
  DataSource::Options options = folder.options();
  options.labels_optional = true;
  const auto source = DataSource::Open(ParseSpec(kWeighted), options, PosixFileSystem());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto neither = ReadAll(**source, "neither.csv");
  ASSERT_TRUE(neither.ok()) << neither.status();
  EXPECT_THAT(neither->batch.labels, ElementsAre(IsNan(), IsNan()));
  EXPECT_THAT(neither->batch.weights, ElementsAre(1, 1));
  EXPECT_THAT(neither->batch.dense, ElementsAre(1, 2));
  const auto some = ReadAll(**source, "some.csv");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->bad_records, 1u) << "a label that is there is one";
  EXPECT_THAT(some->batch.labels, ElementsAre(IsNan(), 1));
  EXPECT_THAT(some->batch.weights, ElementsAre(3, 1));
}

TEST(DataReaderTest, NothingStandsForALabelThatIsToBePredicted) {
  DataFolder folder;
  folder.Write("a.csv", ",,\n1,2,3\n");
  DataSource::Options options = folder.options();
  options.labels_optional = true;
  const auto source = DataSource::Open(ParseSpec(R"(
    format: CSV
    columns { name: "label" role: LABEL default_value: "0" }
    columns { name: "weight" role: WEIGHT default_value: "4" }
    columns { name: "age" role: DENSE default_value: "5" })"),
                                       options, PosixFileSystem());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto records = ReadAll(**source, "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.labels, ElementsAre(IsNan(), 1));
  EXPECT_THAT(records->batch.weights, ElementsAre(1, 2));
  EXPECT_THAT(records->batch.dense, ElementsAre(5, 3));
}

TEST(DataReaderTest, WithoutAHeaderColumnsStandInTheSpecsOrder) {
  DataFolder folder;
  folder.Write("a.csv", "1,5\n0,6");
  auto records = ReadAll(*OpenSource(folder, R"(format: CSV
      columns { name: "y" role: LABEL } columns { name: "u" role: SPARSE })"),
                         "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(5, 6));
}

TEST(DataReaderTest, QuotesMayHoldSeparatorsQuotesAndLineBreaks) {
  DataFolder folder;
  folder.Write("a.csv",
               "label,age,user,tags\r\n"
               "1,\"2\",3,\"a,b|c\"\"d\r\n|e\"\r\n"
               "0,1,\"4\",\"\"\r\n"
               "1,1,5,in\"side\r\n");
  auto records = ReadAll(*OpenSource(folder, kCsv), "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->first_bad, "");
  const uint64_t space = NameHash("tags");
  EXPECT_THAT(records->batch.sparse[1].keys,
              ElementsAre(StringKey(space, "a,b"), StringKey(space, "c\"d\r\n"),
                          StringKey(space, "e"), StringKey(space, "in\"side")));
  EXPECT_THAT(records->batch.sparse[1].offsets, ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(records->batch.dense, ElementsAre(2, 1, 1));
}

TEST(DataReaderTest, LineEndsByteOrderMarksAndBlankLinesMakeNoDifference) {
  DataFolder folder;
  const std::string plain = "label,age,user,tags\n1,2,3,x\n0,4,5,y\n";
  folder.Write("a.csv", plain);
  folder.Write("b.csv", absl::StrReplaceAll(plain, {{"\n", "\r\n"}}));
  folder.Write("c.csv", "\xef\xbb\xbf" + plain.substr(0, plain.size() - 1));
  folder.Write("d.csv", "\n\n" + absl::StrReplaceAll(plain, {{"\n", "\n\r\n"}}) + "\n");
  const auto source = OpenSource(folder, kCsv);
  auto expected = ReadAll(*source, "a.csv");
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(expected->batch.size, 2u);
  for (const char* name : {"b.csv", "c.csv", "d.csv"}) {
    SCOPED_TRACE(name);
    auto records = ReadAll(*source, name);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->first_bad, "");
    ExpectSameBatch(records->batch, expected->batch);
  }
}

TEST(DataReaderTest, TsvKnowsNoQuotesAndEmptyFieldsTakeTheDefault) {
  DataFolder folder;
  folder.Write("a.tsv", "1\t\t\"a\t7\n0\t3\t\t\n");
  auto records = ReadAll(*OpenSource(folder, R"(format: TSV
      columns { name: "y" role: LABEL }
      columns { name: "count" role: DENSE default_value: "-2" transform: LOG1P }
      columns { name: "site" role: SPARSE type: STRING default_value: "none" key_space: "s" }
      columns { name: "user" role: SPARSE })"),
                         "a.tsv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.dense,
              ElementsAre(FloatNear(-std::log(3.0f), 1e-6f), FloatNear(std::log(4.0f), 1e-6f)));
  EXPECT_THAT(records->batch.sparse[0].keys,
              ElementsAre(StringKey(NameHash("s"), "\"a"), StringKey(NameHash("s"), "none")));
  EXPECT_THAT(records->batch.sparse[1].keys, ElementsAre(7));
  EXPECT_THAT(records->batch.sparse[1].offsets, ElementsAre(0, 1, 1));
}

TEST(DataReaderTest, ColumnsOfOneKeySpaceShareKeys) {
  DataFolder folder;
  folder.Write("a.csv", "1,x,x,x\n");
  auto records = ReadAll(*OpenSource(folder, R"(format: CSV
      columns { name: "y" role: LABEL }
      columns { name: "a" role: SPARSE type: STRING key_space: "s" }
      columns { name: "b" role: SPARSE type: STRING key_space: "s" }
      columns { name: "c" role: SPARSE type: STRING })"),
                         "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->batch.sparse[0].keys, records->batch.sparse[1].keys);
  EXPECT_NE(records->batch.sparse[0].keys, records->batch.sparse[2].keys);
}

TEST(DataReaderTest, LibsvmSplitsIndicesAmongColumns) {
  DataFolder folder;
  folder.Write("a.svm",
               "# a comment\n"
               "+1 3:0.5 1:7 100:2 101:3 # of a record\r\n"
               "\n"
               "-1\n"
               "0 2:4 100:1 500:9\n");
  auto records = ReadAll(*OpenSource(folder, R"(format: LIBSVM
      columns { name: "ids" role: SPARSE index_begin: 100 index_end: 9223372036854775808 }
      columns { name: "numbers" role: DENSE index_begin: 1 index_end: 4 })"),
                         "a.svm");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->first_bad, "");
  EXPECT_THAT(records->batch.labels, ElementsAre(1, 0, 0));
  EXPECT_THAT(records->batch.dense, ElementsAre(7, 0, 0.5f, 0, 0, 0, 0, 4, 0));
  EXPECT_THAT(records->batch.sparse[0].offsets, ElementsAre(0, 2, 2, 4));
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(100, 101, 100, 500));
  EXPECT_THAT(records->batch.sparse[0].weights, ElementsAre(2, 3, 1, 9));
}

TEST(DataReaderTest, LabelsThatMayBeMissingAreThoseOfNoRecord) {
  DataFolder folder;
  folder.Write("a.csv", "click,buy,stars\n1,1,-1\n0,,-1.0\n1, NaN ,\n0,0,3\n0,?,2\n,0,1\n");
  DataSource::Options options = folder.options();
  options.labels = {{}, {}, {.kind = LabelKind::kReal}};
  const auto source = DataSource::Open(ParseSpec(R"(format: CSV header: true
      columns { name: "click" role: LABEL }
      columns { name: "buy" role: LABEL missing_value: "nan" }
      columns { name: "stars" role: LABEL missing_value: "-1" })"),
                                       options, PosixFileSystem());
  ASSERT_TRUE(source.ok()) << source.status();
  auto records = ReadAll(**source, "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.labels,
              ElementsAre(1, 1, IsNan(), 0, IsNan(), IsNan(), 1, IsNan(), IsNan(), 0, 0, 3));
  // Other texts are none, and other columns need their labels.
  EXPECT_EQ(records->bad_records, 2u);
  EXPECT_EQ(records->first_bad,
            "a.csv:6: column \"buy\": \"?\" is not a number; expected a label, 0 or 1");

  folder.Write("a.svm", "1 1:1\nNAN 1:2\n-1 1:3\n");
  records = ReadAll(*OpenSource(folder, R"(format: LIBSVM
      columns { name: "y" role: LABEL missing_value: "nan" }
      columns { name: "x" role: DENSE index_begin: 1 index_end: 2 })"),
                    "a.svm");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.labels, ElementsAre(1, IsNan(), 0));
}

TEST(DataReaderTest, PaddingIsNoId) {
  DataFolder folder;
  folder.Write("a.csv",
               "1,0|0|5|6,pad|a,7\n"
               "0,1|0|2|3|0|4|00,a,0\n"
               "1,0|0,padded|pad,\n"
               "1,9,,-1\n");
  auto records = ReadAll(*OpenSource(folder, R"(format: CSV
      columns { name: "y" role: LABEL }
      columns { name: "past" role: SPARSE separator: "|" pooling: SEQUENCE max_length: 3 padding_id: "0" }
      columns { name: "tags" role: SPARSE type: STRING separator: "|" padding_id: "pad" }
      columns { name: "user" role: SPARSE padding_id: "-1" })"),
                         "a.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->first_bad, "");
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(5, 6, 2, 3, 4, 9));
  EXPECT_THAT(records->batch.sparse[0].offsets, ElementsAre(0, 2, 5, 5, 6));
  const uint64_t space = NameHash("tags");
  EXPECT_THAT(
      records->batch.sparse[1].keys,
      ElementsAre(StringKey(space, "a"), StringKey(space, "a"), StringKey(space, "padded")));
  EXPECT_THAT(records->batch.sparse[1].offsets, ElementsAre(0, 1, 2, 3, 3));
  EXPECT_THAT(records->batch.sparse[2].keys, ElementsAre(7, 0));
  EXPECT_THAT(records->batch.sparse[2].offsets, ElementsAre(0, 1, 2, 2, 2));

  folder.Write("a.svm", "1 4:1 5:2 4:1\n0 6:3\n");
  records = ReadAll(*OpenSource(folder, R"(format: LIBSVM
      columns { name: "ids" role: SPARSE index_begin: 4 index_end: 9 padding_id: "4" })"),
                    "a.svm");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(5, 6));
  EXPECT_THAT(records->batch.sparse[0].weights, ElementsAre(2, 3));
  EXPECT_THAT(records->batch.sparse[0].offsets, ElementsAre(0, 1, 2));
}

TEST(DataReaderTest, LibsvmHasTheIdOfAQueryBehindTheLabel) {
  DataFolder folder;
  folder.Write("a.svm", "1 qid:7 1:0.5 8:1 # doc\n0\tqid:7\n0 qid:9223372036854775807 1:2\n");
  const std::string inputs = R"(
      columns { name: "x" role: DENSE index_begin: 1 index_end: 2 }
      columns { name: "ids" role: SPARSE index_begin: 8 index_end: 9 })";
  auto records = ReadAll(
      *OpenSource(folder,
                  "format: LIBSVM columns { name: \"query\" role: SPARSE qid: true }" + inputs),
      "a.svm");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->first_bad, "");
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(7, 7, kMaxIntegerKey));
  EXPECT_THAT(records->batch.sparse[0].weights, ElementsAre(1, 1, 1));
  EXPECT_THAT(records->batch.sparse[0].offsets, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(records->batch.sparse[1].keys, ElementsAre(8));
  EXPECT_THAT(records->batch.dense, ElementsAre(0.5f, 0, 2));
  records = ReadAll(
      *OpenSource(folder,
                  "format: LIBSVM columns { name: \"query\" role: IGNORED qid: true }" + inputs),
      "a.svm");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->first_bad, "");
  EXPECT_THAT(records->batch.sparse[0].keys, ElementsAre(8));
}

// 5000 records with quoted line breaks, empty fields and several ids, some of them bad.
std::string ManyRecords() {
  std::string text = "label,age,user,tags\n";
  constexpr uint64_t kStream = StreamKey(RandomFor::kGenerator, 3);
  for (uint64_t i = 0; i < 5000; ++i) {
    absl::StrAppend(&text, i % 2, ",", i, i % 97 == 5 ? "x" : "", ",", i * 31, ",");
    if (i % 3 == 0) absl::StrAppend(&text, "\"quoted\n", i, ",|\"\"\"");
    if (i % 3 == 1) absl::StrAppend(&text, std::string(RandomBelow(kStream, i, 300), 'v'));
    text += i % 7 == 0 ? "\r\n" : "\n";
  }
  return text;
}

TEST(DataReaderTest, RangesReadInPiecesEqualTheWhole) {
  DataFolder folder;
  folder.Write("a.csv", ManyRecords());
  const auto source = OpenSource(folder, kCsv);
  auto files = source->Count({"a.csv"});
  ASSERT_TRUE(files.ok()) << files.status();
  const v1::FileRecords& file = files->front();
  ASSERT_EQ(file.records(), 5000u);
  auto whole = source->Read({Range(file, 0, 5000)});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->bad_records, 52u);
  EXPECT_EQ(whole->batch.size, 5000u - 52u);

  for (const uint64_t piece : {1u, 7u, 255u, 256u, 257u, 1023u, 1024u, 1025u, 4999u}) {
    SCOPED_TRACE(piece);
    // A source of its own: nothing comes from the cache of the first.
    const auto fresh = OpenSource(folder, kCsv);
    std::vector<v1::RecordRange> ranges;
    for (uint64_t begin = 0; begin < 5000; begin += piece) {
      ranges.push_back(Range(file, begin, std::min<uint64_t>(5000, begin + piece)));
    }
    auto pieces = fresh->Read(ranges);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    ExpectSameBatch(pieces->batch, whole->batch);
    EXPECT_EQ(pieces->bad_records, whole->bad_records);
    EXPECT_EQ(pieces->first_bad, whole->first_bad);
  }
}

TEST(DataReaderTest, MessagesCountLinesNotRecords) {
  DataFolder folder;
  folder.Write("a.csv", ManyRecords());
  const auto source = OpenSource(folder, kCsv);
  auto files = source->Count({"a.csv"});
  ASSERT_TRUE(files.ok()) << files.status();
  // Of the records before record 4855 every third has a line break of its own.
  auto late = source->Read({Range(files->front(), 4850, 4860)});
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->bad_records, 1u);
  EXPECT_EQ(late->first_bad, absl::StrCat("a.csv:", 2 + 4855 + (4855 + 2) / 3,
                                          ": column \"age\": \"4855x\" is not a number"));
}

TEST(DataReaderTest, PackedFilesReadLikePlainOnesAndLeaveNothingBehind) {
  DataFolder folder;
  const std::string text = ManyRecords();
  const std::string head = text.substr(0, 70001);
  const std::string tail = text.substr(70001);
  folder.Write("a.csv", text);
  folder.Write("b.csv.gz", Gzip(text));
  folder.Write("c.csv.zst", Zstd(text));
  folder.Write("several.csv.gz", Gzip(head) + Gzip(tail) + std::string(512, '\0'));
  folder.Write("several.csv.zst", Zstd(head) + Zstd(tail));
  const auto source = OpenSource(folder, kCsv);
  auto expected = ReadAll(*source, "a.csv");
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* name : {"b.csv.gz", "c.csv.zst", "several.csv.gz", "several.csv.zst"}) {
    SCOPED_TRACE(name);
    auto records = ReadAll(*source, name);
    ASSERT_TRUE(records.ok()) << records.status();
    ExpectSameBatch(records->batch, expected->batch);
    EXPECT_EQ(records->bad_records, expected->bad_records);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.scratch()));
}

// Larger than any buffer on the way.
TEST(DataReaderTest, LargePackedFilesAreUnpackedWhole) {
  DataFolder folder;
  std::string text;
  for (uint64_t i = 0; i < 300000; ++i) absl::StrAppend(&text, i % 2, ",", Mix64(i) >> 1, "\n");
  folder.Write("a.csv.gz", Gzip(text));
  folder.Write("a.csv.zst", Zstd(text));
  const auto source = OpenSource(folder, R"(format: CSV
      columns { name: "y" role: LABEL } columns { name: "u" role: SPARSE })");
  for (const char* name : {"a.csv.gz", "a.csv.zst"}) {
    auto records = ReadAll(*source, name);
    ASSERT_TRUE(records.ok()) << records.status();
    ASSERT_EQ(records->batch.size, 300000u);
    for (uint64_t i = 0; i < 300000; ++i) {
      ASSERT_EQ(records->batch.sparse[0].keys[i], Mix64(i) >> 1);
    }
  }
}

}  // namespace
}  // namespace tessera::worker
