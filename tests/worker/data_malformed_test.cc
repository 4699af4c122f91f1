// Bad files, bad records and bad specs: each ends in a message that says where, what was found and
// what was expected.
#include "absl/strings/str_replace.h"
#include "tests/worker/data_testing.h"

namespace tessera::worker {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT: for texts that hold zero bytes

constexpr char kCsv[] = R"(
  format: CSV header: true
  columns { name: "label" role: LABEL }
  columns { name: "age" role: DENSE }
  columns { name: "user" role: SPARSE })";
constexpr char kTsv[] = R"(
  format: TSV
  columns { name: "label" role: LABEL }
  columns { name: "age" role: DENSE }
  columns { name: "user" role: SPARSE separator: "," })";
constexpr char kSvm[] = R"(
  format: LIBSVM
  columns { name: "ids" role: SPARSE index_begin: 100 index_end: 200 }
  columns { name: "numbers" role: DENSE index_begin: 1 index_end: 4 })";

constexpr char kQueries[] = R"(
  format: LIBSVM
  columns { name: "query" role: SPARSE qid: true }
  columns { name: "ids" role: SPARSE index_begin: 100 index_end: 200 })";

struct Case {
  const char* what;
  const char* spec;
  const char* name;
  std::string content;
  std::vector<std::string> message;
};

// The second of three records is bad.
TEST(DataMalformedTest, BadRecordsAreCountedWithTheirPlaceAndTheOthersRead) {
  const std::string head = "label,age,user\n1,2,3\n";
  const Case cases[] = {
      {"few columns",
       kCsv,
       "a.csv",
       head + "1,2\n0,1,1\n",
       {"a.csv:3: found 2 columns, expected 3"}},
      {"many columns",
       kCsv,
       "a.csv",
       head + "x,2,3,4,5\n0,1,1\n",
       {"a.csv:3: found 5 columns, expected 3"}},
      {"many columns, the last in wrong quotes",
       kCsv,
       "a.csv",
       head + "1,2,3,\"4\"x\n0,1,1\n",
       {"a.csv:3: found 4 columns, expected 3"}},
      {"word as label",
       kCsv,
       "a.csv",
       head + "yes,2,3\n0,1,1\n",
       {"a.csv:3: column \"label\": \"yes\" is not a number; expected a label, 0 or 1"}},
      {"label 2",
       kCsv,
       "a.csv",
       head + "2,2,3\n0,1,1\n",
       {"a.csv:3", "\"label\"", "\"2\" is not a label; expected 0 or 1"}},
      {"label -1", kCsv, "a.csv", head + "-1,2,3\n0,1,1\n", {"\"-1\" is not a label"}},
      {"label nan", kCsv, "a.csv", head + "nan,2,3\n0,1,1\n", {"\"nan\" is not a label"}},
      {"no label",
       kCsv,
       "a.csv",
       head + ",2,3\n0,1,1\n",
       {"column \"label\": is empty; expected a number, 0 or 1 (where a record may have no label, "
        "give the column missing_value: \"\")"}},
      {"word as number",
       kCsv,
       "a.csv",
       head + "1,old,3\n0,1,1\n",
       {"a.csv:3: column \"age\": \"old\" is not a number"}},
      {"trailing letters",
       kCsv,
       "a.csv",
       head + "1,2.5kg,3\n0,1,1\n",
       {"\"2.5kg\" is not a number"}},
      {"nan",
       kCsv,
       "a.csv",
       head + "1,NaN,3\n0,1,1\n",
       {"column \"age\": \"NaN\" is not finite; expected a finite number"}},
      {"infinity",
       kCsv,
       "a.csv",
       head + "1,-inf,3\n0,1,1\n",
       {"column \"age\": \"-inf\" is not finite"}},
      {"beyond float", kCsv, "a.csv", head + "1,1e39,3\n0,1,1\n", {"\"1e39\" is not finite"}},
      {"beyond double", kCsv, "a.csv", head + "1,1e999,3\n0,1,1\n", {"\"1e999\" is too large"}},
      {"empty dense",
       kCsv,
       "a.csv",
       head + "1,,3\n0,1,1\n",
       {"column \"age\": is empty; expected a number (or give it a default_value)"}},
      {"negative id",
       kCsv,
       "a.csv",
       head + "1,2,-3\n0,1,1\n",
       {"a.csv:3: column \"user\": \"-3\" is negative; expected an id in 0 .. 2^63-1 (or "
        "give the column type: string)"}},
      {"id 2^63",
       kCsv,
       "a.csv",
       head + "1,2,9223372036854775808\n0,1,1\n",
       {"column \"user\": \"9223372036854775808\" is above 2^63-1; expected an id in "
        "0 .. 2^63-1 (or give the column type: string)"}},
      {"id beyond 2^64",
       kCsv,
       "a.csv",
       head + "1,2,99999999999999999999999\n0,1,1\n",
       {"is above 2^63-1"}},
      {"fraction as id",
       kCsv,
       "a.csv",
       head + "1,2,3.5\n0,1,1\n",
       {"\"3.5\" is not an integer; expected an id"}},
      {"word as id",
       kCsv,
       "a.csv",
       head + "1,2,a68fd1e64\n0,1,1\n",
       {"\"a68fd1e64\" is not an integer"}},
      {"text after quote",
       kCsv,
       "a.csv",
       head + "1,\"2\"3,4\n0,1,1\n",
       {"a.csv:3: field 2: text follows its closing quote"}},
      {"zero byte",
       kTsv,
       "a.tsv",
       std::string(5000, '\n') + "1\t2\t3\n1\t2\0\t3\n"s + "0\t1\t1\n",
       {"a.tsv:5002: found a zero byte"}},
      {"unprintable",
       kCsv,
       "a.csv",
       head + "1,\x01\xff,3\n0,1,1\n",
       {"\"\\x01\\xff\" is not a number"}},
      {"long value",
       kCsv,
       "a.csv",
       head + "1," + std::string(5000, 'z') + ",3\n0,1,1\n",
       {"\"" + std::string(40, 'z') + "...\" is not a number"}},
      {"one bad id of several",
       kTsv,
       "a.tsv",
       "1\t2\t3\n1\t2\t4,-5\n0\t1\t1\n",
       {"a.tsv:2: column \"user\": \"-5\" is negative"}},
      {"spaces in a TSV",
       kTsv,
       "a.tsv",
       "1\t2\t3\n1 2 3\n0\t1\t1\n",
       {"a.tsv:2: found 1 columns, expected 3"}},
      {"svm label",
       kSvm,
       "a.svm",
       "1 1:1\nx 1:1\n0 1:1\n",
       {"a.svm:2: label: \"x\" is not a number", "0 or 1"}},
      {"svm no colon",
       kSvm,
       "a.svm",
       "1 1:1\n1 2\n0 1:1\n",
       {"a.svm:2: \"2\" has no ':'; expected index:value"}},
      {"svm negative index",
       kSvm,
       "a.svm",
       "1 1:1\n1 -2:1\n0 1:1\n",
       {"\"-2:1\": index \"-2\" is negative"}},
      {"svm index of no column",
       kSvm,
       "a.svm",
       "1 1:1\n1 50:1\n0 1:1\n",
       {"\"50:1\" has an index of no column"}},
      {"svm index at the end",
       kSvm,
       "a.svm",
       "1 1:1\n1 200:1\n0 1:1\n",
       {"\"200:1\" has an index of no column"}},
      {"svm value",
       kSvm,
       "a.svm",
       "1 1:1\n1 101:2 102:abc\n0 1:1\n",
       {"column \"ids\": \"102:abc\": the value is not a number"}},
      {"svm nan",
       kSvm,
       "a.svm",
       "1 1:1\n1 2:nan\n0 1:1\n",
       {"column \"numbers\": \"2:nan\": the value is not finite"}},
      {"svm twice",
       kSvm,
       "a.svm",
       "1 1:1\n1 2:1 2:1\n0 2:1\n",
       {"\"2:1\" gives this index a second value"}},
      {"svm qid of no column",
       kSvm,
       "a.svm",
       "1 1:1\n1 qid:3 2:1\n0 2:1\n",
       {"a.svm:2: \"qid:3\" is an id of no column; expected index:value (to take it, add a column "
        "of role sparse with qid: true"}},
      {"svm no qid",
       kQueries,
       "a.svm",
       "1 qid:1 101:1\n1 101:1\n0 qid:1 102:1\n",
       {"a.svm:2: column \"query\": \"101:1\" stands behind the label; expected qid:N"}},
      {"svm nothing behind the label",
       kQueries,
       "a.svm",
       "1 qid:1 101:1\n1\n0 qid:1 102:1\n",
       {"a.svm:2: column \"query\": nothing stands behind the label; expected qid:N"}},
      {"svm wrong qid",
       kQueries,
       "a.svm",
       "1 qid:1 101:1\n1 qid:q7 101:1\n0 qid:1 102:1\n",
       {"a.svm:2: column \"query\": \"q7\" behind qid: is not an integer; expected an id in "
        "0 .. 2^63-1"}},
      {"svm negative qid",
       kQueries,
       "a.svm",
       "1 qid:1 101:1\n1 qid:-7 101:1\n0 qid:1 102:1\n",
       {"a.svm:2: column \"query\": \"-7\" behind qid: is negative; expected an id"}},
      {"svm second qid",
       kQueries,
       "a.svm",
       "1 qid:1 101:1\n1 qid:1 101:1 qid:2\n0 qid:1 102:1\n",
       {"a.svm:2: \"qid:2\" is not right behind the label; expected one qid:N, there"}},
  };
  DataFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    folder.Write(c.name, c.content);
    auto records = ReadAll(*OpenSource(folder, c.spec), c.name);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->bad_records, 1u);
    EXPECT_EQ(records->batch.size, 2u);
    EXPECT_EQ(records->batch.labels, (std::vector<float>{1, 0}));
    for (const SparseColumn& column : records->batch.sparse) {
      EXPECT_EQ(column.offsets.size(), 3u);
      EXPECT_EQ(column.offsets.back(), column.keys.size());
    }
    EXPECT_EQ(records->batch.dense.size() % 2, 0u);
    for (const std::string& part : c.message) EXPECT_THAT(records->first_bad, HasSubstr(part));
  }
}

TEST(DataMalformedTest, AQuoteThatIsNeverClosedIsABadRecordWhereNoLineFollows) {
  DataFolder folder;
  for (const char* end : {"", "\n", "\r\n\n"}) {
    folder.Write("a.csv", absl::StrCat("label,age,user\n1,2,3\n1,\"2,3", end));
    auto records = ReadAll(*OpenSource(folder, kCsv), "a.csv");
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->batch.size, 1u);
    EXPECT_EQ(records->first_bad, "a.csv:3: field 2: its quote is never closed");
  }
  // Of one that is closed at the end of the file nothing is lost.
  folder.Write("a.csv", "label,age,user\n1,2,3\n0,2,\"3\n\"");
  EXPECT_EQ(ReadAll(*OpenSource(folder, kCsv), "a.csv")->bad_records, 1u);
}

TEST(DataMalformedTest, ACarriageReturnThatEndsNoLineIsText) {
  DataFolder folder;
  constexpr char kStrings[] = R"(format: CSV
    columns { name: "y" role: LABEL } columns { name: "a" role: SPARSE type: STRING })";
  for (const std::string& content : {"1,\"x\ry\""s, "1,x\r"s, "1,x\r\n"s, "1,x\ry\n"s,
                                     "1," + std::string(70000, 'x') + "\ry\n"}) {
    folder.Write("a.csv", content);
    auto records = ReadAll(*OpenSource(folder, kStrings), "a.csv");
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->batch.size, 1u);
  }
}

TEST(DataMalformedTest, AHeaderThatTheSpecDoesNotTellOfIsSuspected) {
  DataFolder folder;
  folder.Write("a.tsv", "label\tage\tuser\n1\t2\t3\n");
  auto records = ReadAll(*OpenSource(folder, kTsv), "a.tsv");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->bad_records, 1u);
  EXPECT_THAT(records->first_bad, HasSubstr("set data.header: true"));
}

struct FileCase {
  const char* what;
  const char* name;
  std::string content;
  StatusCode code;
  std::vector<std::string> message;
};

TEST(DataMalformedTest, BadFilesAreRefusedWithTheirNameAndReason) {
  const std::string good = "label,age,user\n1,2,3\n";
  std::string text = good;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, i % 2, ",", i * 37 % 1000, ",", i, "\n");
  const std::string gzip = Gzip(text);
  const std::string zstd = Zstd(text);
  const auto flipped = [](std::string packed) {
    packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
    return packed;
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  const FileCase cases[] = {
      {"empty", "a.csv", "", invalid, {"a.csv: is empty; expected records"}},
      {"blank", "a.csv", "\n\r\n\n", invalid, {"a.csv: has no header, only blank lines"}},
      {"header alone",
       "a.csv",
       "label,age,user\n",
       invalid,
       {"a.csv: has a header and no records"}},
      {"column missing",
       "a.csv",
       "label,agee,user\n1,2,3\n",
       invalid,
       {"a.csv: line 1: the header has no column \"age\"; did you mean \"agee\"?"}},
      {"columns unlike",
       "a.csv",
       "first,second\n1,2\n",
       invalid,
       {"the header has no column \"label\"; known are first, second"}},
      {"column twice",
       "a.csv",
       "label,age,user,age\n1,2,3,4\n",
       invalid,
       {"the header names column \"age\" twice"}},
      {"header quote",
       "a.csv",
       "label,\"age\"x,user\n1,2,3\n",
       invalid,
       {"line 1: header field 2: text follows its closing quote"}},
      {"binary",
       "a.csv",
       good + "\x7f"
              "ELF\0\0\0"s,
       invalid,
       {"a.csv: line 3: has a zero byte at byte 25", "binary"}},
      {"gzip without its name", "a.csv", gzip, invalid, {"a.csv: is gzip data: name it .gz"}},
      {"zstd without its name", "a.csv", zstd, invalid, {"a.csv: is zstd data: name it .zst"}},
      {"utf-16", "a.csv", "\xff\xfel\0a\0"s, invalid, {"a.csv: is UTF-16 text"}},
      {"parquet", "a.csv", "PAR1....", invalid, {"a.csv: is a Parquet file"}},
      {"line ends by CR",
       "a.csv",
       "label,age,user\r1,2,3\r0,2,3\r",
       invalid,
       {"a.csv: has line ends by CR only, so that all of it is one line; expected LF or CR and LF: "
        "convert it, as by tr '\\r' '\\n' < OLD > NEW"}},
      {"many line ends by CR",
       "a.csv",
       absl::StrReplaceAll(text, {{"\n", "\r"}}),
       invalid,
       {"a.csv: has line ends by CR only"}},
      {"quote that takes a line",
       "a.csv",
       good + "1,\"2,3\n0,1,1\n",
       invalid,
       {"a.csv: line 3: a quote that opens here is never closed: 1 line after it", "close it"}},
      {"quote that takes lines",
       "a.csv",
       text + "\"1\n\",2,\"12 inch\n0,1,1\n0,1,1\n\n",
       invalid,
       {"a.csv: line 20004: a quote that opens here is never closed: 2 lines"}},
      {"quote in the header",
       "a.csv",
       "label,\"age,user\n1,2,3\n",
       invalid,
       {"a.csv: line 1: a quote that opens here is never closed"}},
      {"overlong record",
       "a.csv",
       good + "1,2,3\n\"" + std::string(3 << 20, 'x') + "\n",
       invalid,
       {"a.csv: line 4: the record that starts here is longer than 1 MiB, the most that a",
        "quote"}},
      {"overlong last record",
       "a.csv",
       good + std::string((1 << 20) + 1, 'x'),
       invalid,
       {"a.csv: line 3: the record that starts here is longer than 1 MiB"}},
      {"no gzip", "a.csv.gz", good, invalid, {"a.csv.gz: is named like a gzip file"}},
      {"empty gzip", "a.csv.gz", "", invalid, {"a.csv.gz: is empty"}},
      {"gzip of nothing", "a.csv.gz", Gzip(""), invalid, {"a.csv.gz: is empty; expected records"}},
      {"short gzip",
       "a.csv.gz",
       gzip.substr(0, gzip.size() / 2),
       invalid,
       {"a.csv.gz: ends at byte ", absl::StrCat(gzip.size() / 2), "is the copy complete?"}},
      {"gzip less its checksum",
       "a.csv.gz",
       gzip.substr(0, gzip.size() - 8),
       invalid,
       {"ends at byte "}},
      {"one byte of gzip", "a.csv.gz", gzip.substr(0, 1), invalid, {"ends at byte 1"}},
      {"damaged gzip",
       "a.csv.gz",
       flipped(gzip),
       invalid,
       {"a.csv.gz: packed data is damaged at about byte "}},
      {"text after gzip", "a.csv.gz", gzip + "hello", invalid, {"packed data is damaged"}},
      {"no zstd", "a.csv.zst", good, invalid, {"a.csv.zst: is named like a zstd file"}},
      {"short zstd",
       "a.csv.zst",
       zstd.substr(0, zstd.size() / 2),
       invalid,
       {"a.csv.zst: ends at byte "}},
      {"zstd less its checksum",
       "a.csv.zst",
       zstd.substr(0, zstd.size() - 2),
       invalid,
       {"ends at byte "}},
      {"damaged zstd",
       "a.csv.zst",
       flipped(zstd),
       invalid,
       {"a.csv.zst: packed data is damaged at about byte "}},
      {"gzip of a binary",
       "a.csv.gz",
       Gzip("\0\0\0\0"s),
       invalid,
       {"a.csv.gz: line 1: has a zero byte at byte 0"}},
  };
  DataFolder folder;
  for (const FileCase& c : cases) {
    SCOPED_TRACE(c.what);
    folder.Write(c.name, c.content);
    const auto source = OpenSource(folder, kCsv);
    const absl::Status status = source->Count({c.name}).status();
    EXPECT_EQ(status.code(), c.code) << status;
    for (const std::string& part : c.message) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.scratch()));
    // The same file made whole is read by the same source.
    folder.Write(c.name, c.name == std::string("a.csv")      ? good
                         : c.name == std::string("a.csv.gz") ? Gzip(good)
                                                             : Zstd(good));
    auto records = ReadAll(*source, c.name);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->batch.size, 1u);
  }
}

TEST(DataMalformedTest, BadSpecsAreRefusedWithTheColumnsName) {
  const std::string label = R"(columns { name: "y" role: LABEL } )";
  const struct {
    std::string spec;
    const char* message;
  } cases[] = {
      {label, "data.format is DATA_FORMAT_UNSPECIFIED, expected CSV, TSV or LIBSVM"},
      {"format: CSV", "no column of role LABEL"},
      {"format: CSV " + label + R"(columns { role: DENSE })", "data.columns[1] has no name"},
      {"format: CSV " + label + R"(columns { name: "a" })", "column \"a\": has no role"},
      {"format: CSV " + label + label, "column \"y\": stands twice"},
      {"format: LIBSVM " + label + R"(columns { name: "z" role: LABEL })",
       "column \"z\": is a second LABEL; LIBSVM files have one"},
      {"format: CSV " + label +
           R"(columns { name: "w" role: WEIGHT } columns { name: "v" role: WEIGHT })",
       "column \"v\": is a second WEIGHT"},
      {"format: CSV " + label + R"(columns { name: "a" role: SPARSE type: FLOAT })",
       "column \"a\": type is FLOAT, expected INT64 or STRING"},
      {"format: CSV " + label + R"(columns { name: "a" role: DENSE type: STRING })",
       "column \"a\": type is STRING, expected FLOAT"},
      {"format: CSV " + label + R"(columns { name: "a" role: SPARSE transform: LOG1P })",
       "LOG1P is only for DENSE"},
      {"format: CSV " + label + R"(columns { name: "a" role: SPARSE separator: "ab" })",
       "must be one character"},
      {"format: TSV " + label + R"(columns { name: "a" role: SPARSE separator: "\t" })",
       "separator is the tab"},
      {"format: CSV " + label + R"(columns { name: "a" role: DENSE separator: "|" })",
       "separator is only for SPARSE"},
      {"format: LIBSVM header: true", "LIBSVM files have none"},
      {R"(format: LIBSVM columns { name: "a" role: SPARSE })",
       "column \"a\": indices [0, 0) are empty"},
      {R"(format: LIBSVM columns { name: "a" role: SPARSE index_end: 5 } columns { name: "b" role: DENSE index_begin: 4 index_end: 9 })",
       "columns \"a\" and \"b\" both take index 4"},
      {R"(format: LIBSVM columns { name: "a" role: DENSE index_end: 1000000 })",
       "wider than 65536"},
      {"format: CSV " + label + R"(columns { name: "a" role: DENSE missing_value: "" })",
       "column \"a\": missing_value is only for LABEL"},
      {R"(format: CSV columns { name: "y" role: LABEL default_value: "0" missing_value: "" })",
       "has a default_value and a missing_value"},
      {R"(format: LIBSVM columns { name: "y" role: LABEL missing_value: "" })",
       "LIBSVM has no empty labels"},
      {"format: CSV " + label + R"(columns { name: "a" role: DENSE padding_id: "0" })",
       "padding_id is only for SPARSE"},
      {"format: CSV " + label + R"(columns { name: "a" role: SPARSE qid: true })",
       "qid is only for LIBSVM"},
      {R"(format: LIBSVM columns { name: "a" role: SPARSE qid: true index_end: 5 })",
       "a range of indices and qid"},
      {R"(format: LIBSVM columns { name: "a" role: DENSE qid: true })", "DENSE and has qid"},
      {R"(format: LIBSVM columns { name: "a" role: SPARSE qid: true } columns { name: "b" role: IGNORED qid: true })",
       "columns \"a\" and \"b\" both have qid"},
      {R"(format: LIBSVM columns { name: "a" role: SPARSE index_end: 18446744073709551615 })",
       "above 2^63"},
  };
  DataFolder folder;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.spec);
    const absl::Status status =
        DataSource::Open(ParseSpec(c.spec), folder.options(), PosixFileSystem()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(DataMalformedTest, ADefaultValueThatDoesNotParseIsRefusedBeforeAnyRecord) {
  DataFolder folder;
  folder.Write("a.csv", "1,2\n");
  const auto source = OpenSource(folder, R"(format: CSV columns { name: "y" role: LABEL }
      columns { name: "a" role: DENSE default_value: "none" })");
  const absl::Status status = source->Count({"a.csv"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("default_value: column \"a\": \"none\" is not a number"));
}

}  // namespace
}  // namespace tessera::worker
