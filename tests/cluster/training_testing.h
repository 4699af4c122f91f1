#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/data_generator.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/manifest.h"
#include "common/config/override.h"
#include "common/config/yaml_job.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "local/local_run.h"
#include "tests/paths.h"

namespace tessera {

// Whole jobs on a cluster in this process, on generated click data.
class TrainingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    spdlog::set_level(spdlog::level::err);
    // Every test is a process of its own, and several run at once.
    data_folder_ =
        new std::string(absl::StrCat(testing::TempDir(), "/tessera-training-data-", ::getpid()));
    client::ClickDataOptions options;
    options.folder = *data_folder_;
    options.train = 12000;
    options.validation = 3000;
    options.test = 3000;
    options.force = true;
    ASSERT_TRUE(client::GenerateClickData(options, PosixFileSystem(), nullptr).ok());
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(*data_folder_);
    delete data_folder_;
  }

  // What a test that failed has written stays.
  void TearDown() override {
    if (!HasFailure()) std::filesystem::remove_all(TestFolder());
  }

  static std::string TestFolder() {
    return absl::StrCat(testing::TempDir(), "/tessera-training-",
                        testing::UnitTest::GetInstance()->current_test_info()->name(), "-",
                        ::getpid());
  }
  static std::string PathOf(const std::string& name) { return TestFolder() + "/" + name; }
  // A folder that does not exist yet.
  static std::string RunFolder(const std::string& name) {
    std::filesystem::create_directories(TestFolder());
    std::filesystem::remove_all(PathOf(name));
    return PathOf(name);
  }

  v1::JobSpec Job(const std::vector<std::string>& overrides) {
    auto job = LoadJobFile(SourcePath("deploy/jobs/quickstart.yaml"));
    EXPECT_TRUE(job.ok()) << job.status();
    std::vector<std::string> all = {"train.epochs=2", "train.batch_size=256",
                                    "data.shuffle_window_records=3000",
                                    "evaluation.every_epochs=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    for (const std::string& assignment : all) {
      EXPECT_TRUE(ApplyOverride(assignment, *job).ok()) << assignment;
    }
    return job->spec;
  }

  struct Cluster {
    int ps = 2;
    int workers = 2;
    std::string data_root = {};
    std::string checkpoint_root = {};
  };

  v1::JobStatus Run(const std::string& name, const v1::JobSpec& spec, Cluster cluster,
                    v1::Task task = v1::TRAIN, const std::string& output = "") {
    const std::string folder = RunFolder(name);
    local::LocalRun::Options options;
    options.in_process = true;
    options.cluster.work_folder = folder;
    options.cluster.data_root = cluster.data_root.empty() ? *data_folder_ : cluster.data_root;
    options.cluster.checkpoint_root =
        cluster.checkpoint_root.empty() ? folder + "/checkpoints" : cluster.checkpoint_root;
    options.cluster.output_root = folder;
    options.cluster.ps = cluster.ps;
    options.cluster.workers = cluster.workers;
    options.cluster.say = [](const std::string&) {};
    options.cluster.on_failure = [](const absl::Status& s) { ADD_FAILURE() << s; };
    options.on_status = [](const v1::JobStatus&) {};
    *options.request.mutable_spec() = spec;
    options.request.set_workers(cluster.workers);
    options.request.set_ps(cluster.ps);
    options.request.set_task(task);
    options.request.set_output(output);
    auto status = local::LocalRun(std::move(options)).Run();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? *status : v1::JobStatus();
  }

  static std::string Digest(const v1::JobStatus& status) {
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.reason() << ": " << status.message();
    const auto digest = DigestCheckpoint(PosixFileSystem(), status.checkpoint());
    EXPECT_TRUE(digest.ok()) << digest.status();
    return digest.ok() ? *digest : "";
  }

  // How often every row of every table was updated, by the checkpoint.
  static std::map<std::pair<uint32_t, uint64_t>, uint32_t> Updates(const v1::JobStatus& status) {
    EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.reason() << ": " << status.message();
    FileSystem& files = PosixFileSystem();
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> updates;
    auto manifest = ReadManifest(files, status.checkpoint());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    const uint32_t tables = static_cast<uint32_t>(manifest->tables_size());
    auto reader = CheckpointReader::Open(files, status.checkpoint(), *std::move(manifest));
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (uint32_t t = 0; t < tables; ++t) {
      for (uint32_t p = 0; p < (*reader)->partition_count(); ++p) {
        auto rows = (*reader)->Read(TableIndex(t), PartitionId(p));
        EXPECT_TRUE(rows.ok()) << rows.status();
        for (uint64_t i = 0; i < rows->rows(); ++i) {
          const bool once = updates.emplace(std::pair(t, rows->key(i)), rows->frequency(i)).second;
          EXPECT_TRUE(once) << "key " << rows->key(i) << " is there twice";
        }
      }
    }
    return updates;
  }

  // A job that is asked for something on its way: `run` runs it in the folder of a name, and has
  // nothing to give where it ended too soon. Its steps take time, more of it at each try: how long
  // a busy machine takes to ask, and to do what it is asked for, is not known.
  static v1::JobStatus RunSlowed(
      const std::string& name,
      absl::FunctionRef<std::optional<v1::JobStatus>(const std::string& name)> run) {
    for (const char* delay : {"1ms", "10ms", "100ms"}) {
      const std::string rules = absl::StrCat("worker.push.send=delay:", delay);
      EXPECT_TRUE(ArmFailpoints(rules.c_str()).ok());
      std::optional<v1::JobStatus> status = run(absl::StrCat(name, "-", delay));
      DisarmFailpoints();
      if (status.has_value()) return *std::move(status);
    }
    ADD_FAILURE() << name << ": the job ended before all was done";
    return {};
  }

  // How many of the job's events say it.
  static size_t CountEvents(const v1::JobStatus& status, absl::string_view what) {
    return std::count_if(status.events().begin(), status.events().end(), [what](const auto& event) {
      return absl::StrContains(event.message(), what);
    });
  }

  static inline std::string* data_folder_ = nullptr;
};

}  // namespace tessera
