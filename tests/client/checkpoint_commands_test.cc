#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "tests/client/commands_testing.h"
#include "tests/common/checkpoint_testing.h"

namespace tessera::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(CommandsTest, CheckpointCommandsSayWhenThereIsNone) {
  EXPECT_EQ(Run({"checkpoint", "verify", folder_}), 3);
  EXPECT_EQ(Run({"checkpoint", "digest", folder_ / "none"}), 3);
  EXPECT_EQ(Run({"checkpoint", "inspect", folder_}), 3);
  EXPECT_EQ(Run({"checkpoint", "list", folder_}), 0);
  EXPECT_THAT(out_, HasSubstr("no checkpoints in"));
  EXPECT_EQ(Run({"checkpoint", "list", folder_ / "none"}), 3);
}

TEST_F(CommandsTest, CheckpointInspectReadsRowsAndSlotsByKey) {
  const std::string one = folder_ / "job" / "step-000000000012";
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), one, SmallModel(), 16, 3).ok());
  EXPECT_EQ(Run({"checkpoint", "inspect", one}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("6 rows of 2 floats and 1 of the optimizer"));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "7"}), 0) << err_;
  EXPECT_EQ(out_, "key 7: frequency 7, last step 3\n  embedding 7 -7.5\n  slots     0.100000001\n");
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "010"}), 3);
  EXPECT_THAT(out_, StartsWith("key 10: "));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user", "--key", "8", "--key",
                 "18446744073709551615", "--output", "json"}),
            3);
  const nlohmann::json rows = nlohmann::json::parse(out_)["rows"];
  EXPECT_EQ(rows[0]["found"], false);
  EXPECT_EQ(rows[1]["key"], ~uint64_t{0});
  EXPECT_EQ(rows[1]["slots"].size(), 1u);
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "usr", "--key", "7"}), 3);
  EXPECT_THAT(err_, HasSubstr("there are user, empty, dense"));
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--key", "7"}), 2);
  EXPECT_EQ(Run({"checkpoint", "inspect", one, "--table", "user"}), 2);
  EXPECT_THAT(err_, HasSubstr("--table user needs --key"));
}

TEST_F(CommandsTest, CheckpointInspectFindsTheRowOfAString) {
  // Mix64(Mix64(XXH3("tags")) ^ XXH3("sale")) by Python's xxhash (worker/onnx/README.md).
  constexpr uint64_t kSale = 9664535480790736360ull;
  std::vector<TestTable> model = SmallModel();
  model[0].rows[kSale] = {5, 3, {1, 2, 0.25f}};
  const std::string one = folder_ / "job" / "step-000000000012";
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), one, model, 16, 3).ok());
  v1::CheckpointManifest manifest = *ReadManifest(PosixFileSystem(), one);
  for (const char* const name : {"shop", "labels"}) {
    v1::ColumnSpec& column = *manifest.mutable_spec()->mutable_data()->add_columns();
    column.set_name(name);
    column.set_role(v1::SPARSE);
    if (name == std::string("labels")) {
      column.set_type(v1::STRING);
      column.set_key_space("tags");
    }
  }
  ASSERT_TRUE(WriteManifest(PosixFileSystem(), one, manifest).ok());
  const auto inspect = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"checkpoint", "inspect", one, "--table", "user"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  EXPECT_EQ(inspect({"--column", "labels", "--value", "sale"}), 0) << err_;
  EXPECT_EQ(out_, absl::StrCat("\"sale\", key ", kSale,
                               ": frequency 5, last step 3\n  embedding 1 2\n  slots     0.25\n"));
  EXPECT_EQ(inspect({"--column", "labels", "--value", "none", "--output", "json"}), 3);
  EXPECT_EQ(nlohmann::json::parse(out_)["rows"][0]["value"], "none");
  EXPECT_EQ(inspect({"--column", "shop", "--value", "sale"}), 3);
  EXPECT_THAT(err_, HasSubstr("--column shop: the job's columns of strings are labels"));
  EXPECT_EQ(inspect({"--value", "sale"}), 2);
  EXPECT_THAT(err_, HasSubstr("--column"));
}

TEST_F(CommandsTest, CheckpointDiffSaysByItsExitCodeWhetherTwoAreEqual) {
  const std::string a = folder_ / "a", b = folder_ / "b";
  std::vector<TestTable> other = SmallModel();
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), a, SmallModel(), 16, 3).ok());
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), b, other, 4, 1).ok());
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 0) << err_;
  EXPECT_EQ(out_,
            "user: 6 rows are the same\nempty: 0 rows are the same\n"
            "dense: 3 rows are the same\nequal\n");
  other[0].rows.at(7).values[0] = 0;
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), b, other, 4, 1).ok());
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 4);
  EXPECT_THAT(out_, HasSubstr("  1 differ: keys 7\n"));
  EXPECT_EQ(Run({"checkpoint", "diff", a, b, "--output", "json"}), 4);
  EXPECT_EQ(nlohmann::json::parse(out_)["tables"][0]["different"]["first_keys"][0], 7);
  std::ofstream(b + "/rows-0", std::ios::app) << "x";
  EXPECT_EQ(Run({"checkpoint", "diff", a, b}), 1);
  EXPECT_THAT(err_, HasSubstr("b/rows-0: damaged"));
  EXPECT_EQ(Run({"checkpoint", "diff", a, folder_ / "c"}), 3);
}

TEST_F(CommandsTest, CheckpointExpiryCountsWhatRulesWouldTake) {
  const std::string folder = folder_ / "a";
  // Cut after 12 steps: keys 1 to 3 are old, 2 to 4 are rare, 4 is small.
  const TestTable table = {
      "emb",
      2,
      0,
      {{1, {9, 1, {3, 4}}}, {2, {1, 1, {3, 4}}}, {3, {1, 1, {3, 4}}}, {4, {1, 9, {0.1f, 0}}}}};
  ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), folder, {table}, 4, 2).ok());
  v1::CheckpointManifest manifest = *ReadManifest(PosixFileSystem(), folder);
  *manifest.mutable_spec() = ParseJobYaml(kJob, "job.yaml")->spec;
  ASSERT_TRUE(WriteManifest(PosixFileSystem(), folder, manifest).ok());
  EXPECT_EQ(Run({"checkpoint", "expiry", folder}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("no table has rules of expiry; try some with --set"));
  const auto try_rules = [&](const std::vector<std::string>& rules) {
    std::vector<std::string> arguments = {"checkpoint", "expiry", folder};
    for (const std::string& rule : rules) {
      arguments.insert(arguments.end(), {"--set", "tables.emb.expiry." + rule});
    }
    return Run(arguments);
  };
  EXPECT_EQ(try_rules({"after_steps=10", "min_frequency=2", "min_norm=0.5"}), 0) << err_;
  EXPECT_EQ(out_, "emb: 4 of 4 rows would go (100.0%): by age 3, by frequency 3, by norm 1\n");
  EXPECT_EQ(try_rules({"min_frequency=2", "grace_steps=3"}), 0) << err_;
  EXPECT_EQ(out_, "emb: 2 of 4 rows would go (50.0%): by age 0, by frequency 2, by norm 0\n");
  EXPECT_EQ(try_rules({"min_norm=-1"}), 2);
  EXPECT_THAT(err_, HasSubstr("min_norm"));
  EXPECT_EQ(Run({"checkpoint", "expiry", folder, "--output", "json", "--set",
                 "tables.emb.expiry.after_steps=10"}),
            0);
  EXPECT_EQ(nlohmann::json::parse(out_)["tables"][0]["would_expire"], 3);
  EXPECT_EQ(Run({"checkpoint", "expiry", folder_ / "none"}), 3);
}

TEST_F(CommandsTest, CheckpointListAndPruneKnowTheFoldersOfJobs) {
  const std::string root = folder_ / "root";
  for (const char* name :
       {"job-1/step-000000000010", "job-1/step-000000000020", "job-2/step-000000000005"}) {
    ASSERT_TRUE(WriteTestCheckpoint(PosixFileSystem(), root + "/" + name, SmallModel(), 4, 1).ok());
  }
  EXPECT_EQ(Run({"checkpoint", "list", root, "--output", "json"}), 0) << err_;
  const nlohmann::json list = nlohmann::json::parse(out_)["checkpoints"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["name"], "job-1/step-000000000020");
  EXPECT_EQ(list[2]["name"], "job-2/step-000000000005");
  EXPECT_GT(list[0]["bytes"], 0);
  // A folder that cannot be listed hides no other.
  std::filesystem::create_symlink("broken", root + "/broken");
  EXPECT_EQ(Run({"checkpoint", "list", root, "--output", "json"}), 0) << err_;
  const nlohmann::json with_broken = nlohmann::json::parse(out_)["checkpoints"];
  ASSERT_EQ(with_broken.size(), 4u);
  EXPECT_EQ(with_broken[0]["name"], "broken");
  EXPECT_TRUE(with_broken[0].contains("error"));
  EXPECT_FALSE(with_broken[0].contains("step"));
  EXPECT_EQ(with_broken[1], list[0]);
  EXPECT_EQ(Run({"checkpoint", "list", root}), 0) << err_;
  EXPECT_THAT(out_, StartsWith("broken  "));
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1", "--dry-run"}), 0) << err_;
  EXPECT_EQ(out_,
            "step-000000000020  kept: among the newest 1\n"
            "step-000000000010  would go: older than the newest 1\n");
  EXPECT_TRUE(std::filesystem::exists(root + "/job-1/step-000000000010"));
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1"}), 0) << err_;
  EXPECT_FALSE(std::filesystem::exists(root + "/job-1/step-000000000010"));
  std::ofstream(root + "/job-1/step-000000000020/MANIFEST.json") << "{}";
  EXPECT_EQ(Run({"checkpoint", "list", root + "/job-1"}), 0);
  EXPECT_THAT(out_, HasSubstr("MANIFEST.json: damaged"));
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "1"}), 1);
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-1", "--keep", "0"}), 2);
  EXPECT_EQ(Run({"checkpoint", "prune", root + "/job-9", "--keep", "1"}), 3);
}

}  // namespace
}  // namespace tessera::client
