#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/config/job_to_yaml.h"
#include "common/config/override.h"
#include "common/config/yaml_job.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/paths.h"

namespace tessera {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGood[] = R"(# a comment
name: clicks
seed: 7
data:
  format: csv
  header: true
  columns:
    - {name: label, role: label}
    - {name: price, role: dense, default_value: 0}
    - name: user
      role: sparse
      table: emb
    - {name: tags, role: sparse, type: string, table: [emb], separator: "|"}
  train: {files: "train-*.csv"}
  validation:
    files: [a.csv, b.csv]
tables:
  - name: emb
    dim: 8
    initializer: {normal: {stddev: 1e-2}}
    optimizer:
      learning_rate: 0.001
      adam:
    update: every_row
model:
  name: deepfm
  options: {hidden: [64, 32], dropout: 0.5, activation: relu, batch_norm: true, id: "12"}
  optimizer: {learning_rate: .001, adam: {beta1: 0}}
train:
  batch_size: 256
  epochs: 2
consistency: {sparse: async, dense: sync}
)";

LoadedJob Good() {
  absl::StatusOr<LoadedJob> job = ParseJobYaml(kGood, "job.yaml");
  EXPECT_EQ(job.status(), absl::OkStatus());
  return *std::move(job);
}

// The good job with one line replaced.
absl::Status ErrorOf(const std::string& line, const std::string& replacement) {
  std::string text = kGood;
  const size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  text.replace(at, line.size(), replacement);
  absl::StatusOr<LoadedJob> job = ParseJobYaml(text, "job.yaml");
  if (!job.ok()) return job.status();
  return job->sources.Locate(ValidateJobSpec(job->spec));
}

TEST(JobYaml, FillsEveryKindOfField) {
  const v1::JobSpec spec = Good().spec;
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  EXPECT_EQ(spec.name(), "clicks");
  EXPECT_EQ(spec.seed(), 7u);
  EXPECT_EQ(spec.data().format(), v1::CSV);
  EXPECT_TRUE(spec.data().header());
  ASSERT_EQ(spec.data().columns_size(), 4);
  EXPECT_EQ(spec.data().columns(1).default_value(), "0");
  EXPECT_FALSE(spec.data().columns(0).has_default_value());
  EXPECT_THAT(spec.data().columns(2).table(), testing::ElementsAre("emb"));
  EXPECT_EQ(spec.data().columns(3).separator(), "|");
  EXPECT_THAT(spec.data().train().files(), testing::ElementsAre("train-*.csv"));
  EXPECT_THAT(spec.data().validation().files(), testing::ElementsAre("a.csv", "b.csv"));
  EXPECT_FLOAT_EQ(spec.tables(0).initializer().normal().stddev(), 0.01f);
  EXPECT_TRUE(spec.tables(0).optimizer().has_adam());
  EXPECT_FALSE(spec.tables(0).optimizer().adam().has_beta1());
  EXPECT_EQ(spec.tables(0).update(), v1::EVERY_ROW);
  EXPECT_TRUE(spec.model().optimizer().adam().has_beta1());
  EXPECT_EQ(spec.model().optimizer().adam().beta1(), 0);
  const auto& options = spec.model().options().fields();
  EXPECT_EQ(options.at("hidden").list_value().values(1).number_value(), 32);
  EXPECT_EQ(options.at("dropout").number_value(), 0.5);
  EXPECT_EQ(options.at("activation").string_value(), "relu");
  EXPECT_TRUE(options.at("batch_norm").bool_value());
  EXPECT_EQ(options.at("id").string_value(), "12");
  EXPECT_EQ(spec.consistency().sparse(), v1::ASYNC);
  EXPECT_EQ(spec.consistency().dense(), v1::SYNC);
}

TEST(JobYaml, SaysFileLineAndColumnOfWhatItCannotRead) {
  struct Case {
    std::string line, replacement, starts, says;
  };
  const std::vector<Case> cases = {
      {"seed: 7", "sed: 7", "job.yaml:3:1: sed: unknown field",
       "did you mean 'seed'? Known: name,"},
      {"    optimizer:\n", "    optimiser:\n", "job.yaml:21:5: tables[0].optimiser: unknown field",
       "did you mean 'optimizer'? Known: name, dim, initializer, optimizer, update"},
      {"seed: 7", "seed: ten", "job.yaml:3:7: seed: expected a whole number", "found 'ten'"},
      {"seed: 7", "seed: -7", "job.yaml:3:7: seed: expected a whole number, 0 ..", "found '-7'"},
      {"seed: 7", "seed: 1e6", "job.yaml:3:7: seed:", "write 1000000"},
      {"seed: 7", "seed: '7'", "job.yaml:3:7: seed:", "leave out the quotes"},
      {"seed: 7", "seed: 18446744073709551616", "job.yaml:3:7: seed:", "18446744073709551616"},
      {"seed: 7", "seed:", "job.yaml:3:1: seed: has no value", ""},
      {"seed: 7", "seed: [7]", "job.yaml:3:7: seed: expected a single value, found a list", ""},
      {"seed: 7", "seed: 7\nseed: 8", "job.yaml:4:1: seed: stands here twice", ""},
      {"dim: 8", "dim: 4294967296", "job.yaml:19:10: tables[0].dim:", "0 .. 4294967295"},
      {"header: true", "header: maybe", "job.yaml:6:11: data.header: expected true or false",
       "'maybe'"},
      {"format: csv", "format: cvs", "job.yaml:5:11: data.format: expected one of csv, tsv, libsvm",
       "did you mean 'csv'?"},
      {"update: every_row", "update: row_update_unspecified",
       "job.yaml:24:13: tables[0].update:", "expected one of touched_rows, every_row"},
      {"stddev: 1e-2", "stddev: .nan",
       "job.yaml:20:36: tables[0].initializer.normal.stddev:", "finite number"},
      {"stddev: 1e-2", "stddev: 1e39",
       "job.yaml:20:36: tables[0].initializer.normal.stddev:", "finite number"},
      {"      adam:\n", "      adam:\n      sgd:\n",
       "job.yaml:24:7: tables[0].optimizer.sgd:", "only one of sgd, adagrad, adam, ftrl"},
      {"      adam:\n", "      adam: {beta3: 1}\n",
       "job.yaml:23:14: tables[0].optimizer.adam.beta3", "Known: beta1, beta2, epsilon"},
      {"      adam:\n", "      adam: 1\n", "job.yaml:23:13: tables[0].optimizer.adam:",
       "expected a mapping of fields, found a single value"},
      {"  columns:\n", "  columns: x\n  max_bad_records: 1\n  x:\n",
       "job.yaml:7:12: data.columns:", "expected a list"},
      {"hidden: [64, 32]", "hidden: [64, 32], hidden: 1",
       "job.yaml:27:31: model.options.hidden:", "twice"},
      {"seed: 7", "seed: 7: 8", "job.yaml:3:", "not YAML"},
      {"seed: 7", "seed: [7", "job.yaml:", "not YAML"},
      {"seed: 7", "\tseed: 7", "job.yaml:3:", "not YAML"},
      {"seed: 7", "seed: &a [*a]", "job.yaml:3:", ""},
      {"seed: 7", "seed: *missing", "job.yaml:3:", "begins with '*' must be quoted"},
      {"seed: 7", "? [a, b]\n: 7", "job.yaml:3:3: expected a field's name, found a list", ""},
      {"consistency: {sparse: async", "---\nconsistency: {sparse: async", "job.yaml: found 2", ""},
      // What only validation finds has its line too.
      {"dim: 8", "dim: 0", "job.yaml:19: tables[0].dim: found 0", ""},
      {"      adam:\n", "\n",
       "job.yaml:21: tables[0].optimizer: names no optimizer that this version has", ""},
      {"  batch_size: 256\n", "", "job.yaml:29: train.batch_size: found 0", ""},
      {"table: emb\n", "table: emp\n",
       "job.yaml:12: data.columns[2].table: there is no table 'emp'", "did you mean \"emb\"?"},
      {"name: clicks", "name: Clicks", "job.yaml:2: name:", "lower-case"},
      {"name: clicks\n", "", "job.yaml: name: missing", ""},
  };
  for (const Case& c : cases) {
    const absl::Status status = ErrorOf(c.line, c.replacement);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.replacement;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.starts)) << c.replacement;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.replacement;
  }
}

TEST(JobYaml, ProposesNoNumberThatIsOutOfRange) {
  for (const std::string number : {"1e10", "-1.0", "10000000000"}) {
    EXPECT_THAT(std::string(ErrorOf("dim: 8", "dim: " + number).message()),
                EndsWith("found '" + number + "'"));
  }
}

TEST(JobYaml, TakesSeveralNamesForWhatIsAlikeInAllElse) {
  const std::string start = "data:\n  columns:\n    - {name: label, role: label}\n";
  const auto job =
      ParseJobYaml(start +
                       "    - name: [user, item]\n      role: sparse\n      table: [linear, emb]\n"
                       "    - {name: price, role: dense}\n",
                   "job.yaml");
  ASSERT_EQ(job.status(), absl::OkStatus());
  const auto& columns = job->spec.data().columns();
  ASSERT_EQ(columns.size(), 4);
  EXPECT_EQ(columns[1].name(), "user");
  EXPECT_EQ(columns[2].name(), "item");
  EXPECT_EQ(columns[3].name(), "price");
  for (const int i : {1, 2}) {
    EXPECT_EQ(columns[i].role(), v1::SPARSE);
    EXPECT_EQ(columns[i].table().size(), 2);
  }
  const auto error = [&](const std::string& element) {
    return std::string(ParseJobYaml(start + element, "job.yaml").status().message());
  };
  EXPECT_EQ(error("    - {name: [], role: dense}\n"),
            "job.yaml:4:14: data.columns[1].name: expected a name or a list of names, found []");
  EXPECT_THAT(error("    - {name: [a, [b]], role: dense}\n"),
              StartsWith("job.yaml:4:18: data.columns[2].name: expected a single value"));
  EXPECT_THAT(error("    - {name: [a, b], rle: dense}\n"),
              StartsWith("job.yaml:4:22: data.columns[1].rle: unknown field"));
  // A field that is no list's element has one name.
  EXPECT_THAT(std::string(ParseJobYaml("name: [a, b]\n", "job.yaml").status().message()),
              HasSubstr("name: expected a single value, found a list"));
}

TEST(JobYaml, RefusesWhatIsNoJobFile) {
  EXPECT_THAT(std::string(ParseJobYaml("", "e.yaml").status().message()), HasSubstr("is empty"));
  EXPECT_THAT(std::string(ParseJobYaml("- a", "e.yaml").status().message()),
              HasSubstr("expected a mapping of fields, found a list"));
  EXPECT_EQ(ParseJobYaml(std::string((1 << 20) + 1, ' '), "e.yaml").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ParseJobYaml(std::string(100000, '['), "e.yaml").ok());
  EXPECT_FALSE(ParseJobYaml(std::string("\0\x01\xff\xfe", 4), "e.yaml").ok());
  const absl::Status missing = LoadJobFile("/no/such/job.yaml").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), StartsWith("/no/such/job.yaml: no such file"));
  EXPECT_THAT(std::string(LoadJobFile("/").status().message()), HasSubstr("is a folder"));
}

// As of `tessera check <(make-job)`.
TEST(JobYaml, ReadsAJobFromAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  constexpr absl::string_view kJob = "name: piped\n";
  ASSERT_EQ(::write(ends[1], kJob.data(), kJob.size()), static_cast<ssize_t>(kJob.size()));
  ::close(ends[1]);
  const auto job = LoadJobFile("/dev/fd/" + std::to_string(ends[0]));
  ::close(ends[0]);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.name(), "piped");
  EXPECT_THAT(std::string(LoadJobFile("/dev/zero").status().message()),
              StartsWith("/dev/zero: has more than 1048576 bytes; expected a job"));
}

TEST(JobYaml, BoundsWhatAliasesCanMake) {
  std::string text = "name: a\nmodel:\n  options:\n    x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string last = "*x" + std::to_string(i - 1);
    text += "    x" + std::to_string(i) + ": &x" + std::to_string(i) + " [" + last;
    for (int k = 0; k < 7; ++k) text += ", " + last;
    text += "]\n";
  }
  EXPECT_THAT(std::string(ParseJobYaml(text, "bomb.yaml").status().message()),
              HasSubstr("more than 200000 values"));
}

TEST(JobYaml, BoundsWhatAliasesOfOneTextCanMake) {
  const std::string text(100'000, 'x');
  std::string values = "name: a\nmodel:\n  options:\n    x: [&x " + text;
  std::string names = "name: a\nmodel:\n  options:\n    " + text.substr(0, 1000) + ": [&x [x";
  for (int i = 0; i < 1000; ++i) values += ", *x";
  for (int i = 0; i < 1000; ++i) names += ", x";
  names += "]";
  for (int i = 0; i < 100; ++i) names += ", *x";
  for (const std::string& yaml : {values + "]\n", names + "]\n"}) {
    const absl::Status status = ParseJobYaml(yaml, "bomb.yaml").status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("more than 64 MiB of values and their names"));
    EXPECT_LT(status.message().size(), 1000u);
  }
}

TEST(JobYaml, EveryJobOfDeployJobsIsValid) {
  int jobs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("deploy/jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++jobs;
    const absl::StatusOr<LoadedJob> job = LoadJobFile(entry.path());
    ASSERT_EQ(job.status(), absl::OkStatus());
    EXPECT_EQ(job->sources.Locate(ValidateJobSpec(job->spec)), absl::OkStatus());
    EXPECT_EQ(job->spec.name(), entry.path().stem());
  }
  EXPECT_GE(jobs, 4);
}

TEST(JobToYaml, ReadsBackAsTheSameJob) {
  v1::JobSpec spec = Good().spec;
  spec.mutable_data()->mutable_columns(3)->set_default_value("true");
  spec.mutable_data()->mutable_columns(2)->set_separator(" ");
  spec.mutable_train()->mutable_clip()->set_norm(1.0f / 3);
  const absl::StatusOr<LoadedJob> back = ParseJobYaml(JobToYaml(spec), "back.yaml");
  ASSERT_EQ(back.status(), absl::OkStatus()) << JobToYaml(spec);
  EXPECT_TRUE(MessageDifferencer::Equals(spec, back->spec)) << JobToYaml(spec);
}

TEST(ApplyOverride, ReachesEveryKindOfField) {
  LoadedJob job = Good();
  for (const char* assignment :
       {"train.epochs=3", "tables.emb.dim=16", "data.columns[2].type=string",
        "data.columns.user.key_space=people", "data.test.files=[a.csv, b.csv]",
        "data.validation.files=", "data.train.files=one.csv", "tables.emb.optimizer.sgd={}",
        "train.schedule.plateau.factor=0.1", "model.options.hidden=[8]",
        "model.options.nested.deep=yes", "model.options.dropout=", "consistency.sparse=sync",
        "model.optimizer={learning_rate: 2, ftrl: {}}", "data.columns[1]={name: cost, role: dense}",
        "model.name=wide_deep"}) {
    ASSERT_EQ(ApplyOverride(assignment, job), absl::OkStatus()) << assignment;
  }
  const v1::JobSpec& spec = job.spec;
  EXPECT_EQ(spec.train().epochs(), 3u);
  EXPECT_EQ(spec.train().batch_size(), 256u);
  EXPECT_EQ(spec.tables(0).dim(), 16u);
  EXPECT_EQ(spec.data().columns(2).type(), v1::STRING);
  EXPECT_EQ(spec.data().columns(2).key_space(), "people");
  EXPECT_THAT(spec.data().test().files(), testing::ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(spec.data().validation().files(), testing::IsEmpty());
  EXPECT_THAT(spec.data().train().files(), testing::ElementsAre("one.csv"));
  EXPECT_TRUE(spec.tables(0).optimizer().has_sgd());
  EXPECT_FLOAT_EQ(spec.tables(0).optimizer().learning_rate(), 0.001f);
  EXPECT_FLOAT_EQ(spec.train().schedule().plateau().factor(), 0.1f);
  const auto& options = spec.model().options().fields();
  EXPECT_EQ(options.at("hidden").list_value().values_size(), 1);
  EXPECT_EQ(options.at("nested").struct_value().fields().at("deep").string_value(), "yes");
  EXPECT_EQ(options.count("dropout"), 0u);
  EXPECT_TRUE(spec.model().optimizer().has_ftrl());
  EXPECT_EQ(spec.data().columns(1).name(), "cost");
  EXPECT_FALSE(spec.data().columns(1).has_default_value());
}

TEST(ApplyOverride, TakesAHashWhereItBeginsNoComment) {
  LoadedJob job = Good();
  for (const char* assignment : {"data.columns.user.separator='#'", "data.train.files=day#1.csv",
                                 "data.test.files=[\"day #1.csv\", b.csv] # two"}) {
    ASSERT_EQ(ApplyOverride(assignment, job), absl::OkStatus()) << assignment;
  }
  const v1::DataSpec& data = job.spec.data();
  EXPECT_EQ(data.columns(2).separator(), "#");
  EXPECT_THAT(data.train().files(), testing::ElementsAre("day#1.csv"));
  EXPECT_THAT(data.test().files(), testing::ElementsAre("day #1.csv", "b.csv"));
}

TEST(ApplyOverride, SaysWhatIsWrongAndLeavesTheJobAlone) {
  std::string deep = "model.options";
  for (int i = 0; i < 60000; ++i) deep += ".a";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.epoch=3", "train.epoch: unknown field; did you mean 'epochs'?"},
      {"trian.epochs=3", "trian: unknown field; did you mean 'train'?"},
      {"train.epochs=many", "train.epochs: expected a whole number"},
      {"train.epochs", "found no '='"},
      {"=3", "expected path.to.field=value"},
      {"train..epochs.=3", "expected path.to.field=value"},
      {"tables.em.dim=3", "tables: has no element named 'em'; did you mean \"emb\"?"},
      {"tables[1].dim=3", "tables: has no element 1; it has 1, counted from 0"},
      {"tables[0.dim=3", "expected path.to.field=value"},
      {"train..epochs=3", "expected path.to.field=value"},
      {"tables[0]x.dim=3", "expected path.to.field=value"},
      {"train.epochs.x=3", "train.epochs: is a single value"},
      {"data.train.files[0]=x", "set the whole list: data.train.files=[first,second]"},
      {"data.train.files=[x", "the value is not YAML"},
      {"data.test.files=*.csv", "quoted: 'data.test.files=\"*.csv\"'"},
      {"data.test.files=[a.csv, *.csv]", "such as \"*.csv\""},
      {"name=&x", "begins with one of * & ! % @ ` #"},  // an anchor of nothing
      {"name=!x", "quoted: 'name=\"!x\"'"},             // a tag of nothing
      {"data.columns.user.separator=#", "quoted: 'data.columns.user.separator=\"#\"'"},
      {"data.train.files=day #1.csv", "YAML reads only 'day' of the value; quote it: 'data.train"},
      {deep + "=1", "the path has 60002 parts; expected at most 64"},
      {"name= %x", "quoted: 'name=\"%x\"'"},
      {"name=@x", "quoted: 'name=\"@x\"'"},
      {"name=`x", "quoted: 'name=\"`x\"'"},
      {"model.options.hidden.x=1", "model.options.hidden: is no mapping"},
      {"tables=3", "tables: expected a list"},
  };
  LoadedJob job = Good();
  const v1::JobSpec before = job.spec;
  for (const auto& [assignment, says] : cases) {
    const absl::Status status = ApplyOverride(assignment, job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
    EXPECT_THAT(std::string(status.message()), StartsWith("--set " + assignment + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    EXPECT_TRUE(MessageDifferencer::Equals(job.spec, before)) << assignment;
  }
}

TEST(ApplyOverride, IsNamedByWhatValidationFindsInIt) {
  LoadedJob job = Good();
  ASSERT_EQ(ApplyOverride("tables.emb.dim=0", job), absl::OkStatus());
  EXPECT_THAT(std::string(job.sources.Locate(ValidateJobSpec(job.spec)).message()),
              StartsWith("--set tables.emb.dim=0: tables[0].dim: found 0"));
}

TEST(SourceMap, FindsTheNearestThingAroundAPath) {
  SourceMap sources;
  sources.Add("", "j.yaml");
  sources.Add("tables[1]", "j.yaml:9");
  sources.Add("tables[1].dim", "j.yaml:10");
  EXPECT_EQ(sources.Find("tables[1].dim"), "j.yaml:10");
  EXPECT_EQ(sources.Find("tables[1].optimizer.l2"), "j.yaml:9");
  EXPECT_EQ(sources.Find("tables[12]"), "j.yaml");
  sources.Remove("tables[1]");
  EXPECT_EQ(sources.Find("tables[1].dim"), "j.yaml");
  const absl::Status prose = absl::InvalidArgumentError("not a path: text");
  EXPECT_EQ(sources.Locate(prose), prose);
}

}  // namespace
}  // namespace tessera
