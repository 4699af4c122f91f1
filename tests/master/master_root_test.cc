// The checkpoint root of a master, and whose it is.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/failpoint.h"
#include "tests/master/master_harness.h"

namespace tessera::master {
namespace {

using testing::HasSubstr;

using MasterRootTest = MasterTest;

TEST_F(MasterRootTest, AFreshDataFolderGivesNoNumberThatHasAFolderOfCheckpoints) {
  StartNodes(1, 1);
  const std::string first = Watch(Submit(SmallJob(), 1, 1)).back().job_id();
  ASSERT_EQ(first, "demo-1");
  std::filesystem::create_directories(folder_ + "/checkpoints/another-job-41");
  std::filesystem::create_directories(folder_ + "/checkpoints/notes-99999999999999999999");
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  StartMaster();
  EXPECT_EQ(Submit(SmallJob(), 1, 1), "demo-42");
}

TEST_F(MasterRootTest, TwoClustersDoNotWriteBelowOneCheckpointRoot) {
  StartNodes(1, 1);
  const std::string own = *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  Master::Options options = Options();
  options.data_dir = folder_ + "/other-state";
  {
    // Who cannot serve claims nothing.
    ServerOptions taken;
    taken.listen = "127.0.0.1:0";
    const auto server = RpcServer::Start(taken, {});
    ASSERT_TRUE(server.ok()) << server.status();
    options.server.in_process = nullptr;
    options.server.listen = (*server)->address();
    EXPECT_EQ(Master::Start(options).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER"), own);
  }
  options.server.in_process = &channels_;
  options.server.listen = "other";
  ASSERT_TRUE(Master::Start(options).ok());
  const std::string other = *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  EXPECT_NE(own, other);
  // The later one has it; the earlier one's jobs write nothing, say why, and wait.
  const std::string id = Submit(SmallJob(), 1, 1);
  EXPECT_TRUE(Await(
      [&] { return HasEvent(id, "another master has begun with the same --checkpoint-root"); }));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/checkpoints/" + id));
  // Nor does it begin again.
  StopMaster();
  const auto again = Master::Start(Options());
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("names cluster"));
  // The other one does, with the state it had; until a person gives the root back.
  EXPECT_TRUE(Master::Start(options).ok());
  std::ofstream(folder_ + "/checkpoints/CLUSTER") << own;
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
}

// The folder of a mount is there, and empty, where nothing is mounted.
TEST_F(MasterRootTest, ACheckpointRootThatIsNotMountedLosesNoJob) {
  const std::string root = folder_ + "/checkpoints", away = folder_ + "/unmounted";
  const auto unmount = [&] {
    std::filesystem::rename(root, away);
    std::filesystem::create_directory(root);
  };
  const auto mount = [&] {
    std::filesystem::remove_all(root);
    std::filesystem::rename(away, root);
  };
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(400);
  spec.mutable_evaluation()->set_every_epochs(1000);
  spec.mutable_checkpoint()->set_every_steps(50);
  StartNodes(1, 1);
  const std::string id = Submit(spec, 1, 1);
  const auto written = [](const v1::JobStatus& job) { return !job.checkpoint().empty(); };
  Watch(id, written);
  // A master that serves: what it cannot find now is not lost, and nothing is written beside it.
  unmount();
  ps_.pop_back();
  StartNodes(1, 0);
  EXPECT_TRUE(Await([&] { return HasEvent(id, "is its file system mounted?"); }));
  EXPECT_FALSE(HasEnded(Get(id).state())) << Get(id).message();
  EXPECT_FALSE(std::filesystem::exists(root + "/" + id));
  // One that begins.
  StopMaster();
  const auto again = Master::Start(Options());
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("has no file CLUSTER"));
  mount();
  StartMaster();
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
}

TEST_F(MasterRootTest, ARootThatTheMasterLosesBeforeTheLastCommitIsWaitedFor) {
  // As the ps have it mounted, and as the master has.
  const std::string shared = folder_ + "/shared", root = folder_ + "/checkpoints";
  std::filesystem::rename(root, shared);
  std::filesystem::create_directory_symlink(shared, root);
  ps_.push_back(std::make_unique<FakePs>("ps-0", &channels_, shared));
  StartNodes(0, 1);
  ps_[0]->held_ = 1;
  const std::string id = Submit(SmallJob(), 1, 1);
  ASSERT_TRUE(Await([&] { return ps_[0]->writes_ == 1; }));
  std::filesystem::remove(root);
  std::filesystem::create_directory(root);
  ps_[0]->held_ = 0;
  EXPECT_TRUE(Await([&] { return HasEvent(id, "is its file system mounted?"); }));
  EXPECT_EQ(Get(id).state(), v1::RUNNING) << Get(id).message();
  std::filesystem::remove_all(root);
  std::filesystem::create_directory_symlink(shared, root);
  const v1::JobStatus job = Watch(id).back();
  EXPECT_EQ(v1::JobState_Name(job.state()), "SUCCEEDED") << job.message();
  EXPECT_EQ(job.restarts(), 0u);
}

TEST_F(MasterRootTest, AClaimThatFailsAtTheStartIsTriedAgain) {
  master_.reset();
  std::filesystem::remove_all(folder_);
  const auto cluster = [&] {
    return *ReadWholeFile(PosixFileSystem(), folder_ + "/checkpoints/CLUSTER");
  };
  // The first write is the master's own, the second one the name that it will claim the root by.
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@3").ok());
  StartMaster();
  DisarmFailpoints();
  const std::string own = cluster();
  const std::string id = Submit(SmallJob(), 1, 1);
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), own) << "it did not know its own name";
  StartNodes(1, 1);
  EXPECT_EQ(v1::JobState_Name(Watch(id).back().state()), "SUCCEEDED");
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), own) << "its state did not know that the cluster had claimed the root";
  // So is that of a cluster which takes the root over from this one.
  workers_.clear();
  ps_.clear();
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@2").ok());
  StartMaster();
  DisarmFailpoints();
  EXPECT_EQ(cluster(), own);
  StartNodes(1, 1);
  EXPECT_EQ(v1::JobState_Name(Watch(Submit(SmallJob(), 1, 1)).back().state()), "SUCCEEDED");
  EXPECT_NE(cluster(), own);
}

// The number of its first job was chosen where another cluster's folders could not be seen.
TEST_F(MasterRootTest, ARootOfAnotherClusterIsNotClaimedOnceThereAreJobs) {
  const std::string root = folder_ + "/checkpoints", other = folder_ + "/other";
  const auto cluster = [&] { return *ReadWholeFile(PosixFileSystem(), root + "/CLUSTER"); };
  const std::string owner = cluster();
  StartNodes(1, 1);
  const std::string last = Watch(Submit(SmallJob(), 1, 1)).back().checkpoint();
  workers_.clear();
  ps_.clear();
  StopMaster();
  std::filesystem::remove_all(folder_ + "/state");
  std::filesystem::rename(root, other);
  // The first write is the master's own, the third one that of its claim.
  ASSERT_TRUE(ArmFailpoints("master.state_log.apply=error@3").ok());
  StartMaster();
  DisarmFailpoints();
  // The root's file system is mounted.
  std::filesystem::remove_all(root);
  std::filesystem::rename(other, root);
  const std::string id = Submit(SmallJob(), 1, 1);
  ASSERT_EQ(id, last.substr(0, last.find('/')));
  StartNodes(1, 1);
  EXPECT_TRUE(Await([&] { return HasEvent(id, "which had jobs before it saw that"); }));
  // Nor does a job that begins anew take those checkpoints for its own.
  ps_.pop_back();
  StartNodes(1, 0);
  EXPECT_TRUE(Await([&] {
    return Get(id).restarts() == 1 && HasEvent(id, "which had jobs before it saw that") &&
           Get(id).phase() == "checkpointing";
  }));
  EXPECT_EQ(cluster(), owner);
  StopMaster();
  StartMaster();
  EXPECT_EQ(cluster(), owner);
  EXPECT_FALSE(HasEnded(Get(id).state())) << Get(id).message();
  EXPECT_TRUE(std::filesystem::exists(root + "/" + last + "/" + kManifestName));
  // A root of its own.
  std::filesystem::rename(root, other);
  std::filesystem::create_directory(root);
  EXPECT_EQ(v1::JobState_Name(Watch(id).back().state()), "SUCCEEDED");
  EXPECT_NE(cluster(), owner);
}

}  // namespace
}  // namespace tessera::master
