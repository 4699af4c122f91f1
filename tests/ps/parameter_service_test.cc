#include "ps/service/parameter_service.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/row_file_format.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "ps/parameter_server.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/thread_limit.h"
#include "tests/ps/failing_memory.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using testing::ElementsAre;

// A whole server without a master, over the in-process transport.
class ParameterServiceTest : public testing::Test {
 protected:
  void SetUp() override { Start(Options()); }
  // In the place of the one before.
  void Start(const ParameterServer::Options& options) {
    server_ = nullptr;
    auto server = ParameterServer::Start(options);
    ASSERT_OK(server);
    server_ = *std::move(server);
    stub_ = v1::ParameterService::NewStub(channels_.Connect(server_->address()));
  }
  ParameterServer::Options Options() {
    ParameterServer::Options options;
    options.server.listen = "ps-0";
    options.server.in_process = &channels_;
    options.master_address = "no-master";
    options.name = "ps-0";
    options.checkpoint_root = "root";
    options.channels = &channels_;
    options.files = &files_;
    options.clock = &SystemClock();
    return options;
  }

  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response,
                    absl::Duration timeout = absl::Seconds(30)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    return FromGrpc((stub_.get()->*method)(&context, request, response));
  }
  absl::Status Open(const v1::OpenJobRequest& job) {
    v1::OpenJobResponse response;
    return Call(&v1::ParameterService::Stub::OpenJob, Whole(job), &response);
  }
  absl::Status Push(const v1::PushRequest& request) {
    v1::PushResponse response;
    return Call(&v1::ParameterService::Stub::Push, request, &response);
  }
  absl::StatusOr<v1::PullResponse> Pull(const v1::PullRequest& request,
                                        absl::Duration timeout = absl::Seconds(30)) {
    v1::PullResponse response;
    const absl::Status status =
        Call(&v1::ParameterService::Stub::Pull, request, &response, timeout);
    if (!status.ok()) return status;
    return response;
  }

  // The metrics that the server prints whose line begins with `name`.
  std::vector<std::string> Scrape(const std::string& name) {
    const auto stub = v1::MetricsService::NewStub(channels_.Connect(server_->address()));
    grpc::ClientContext context;
    v1::GetMetricsResponse response;
    EXPECT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
    std::vector<std::string> lines;
    for (const absl::string_view line : absl::StrSplit(response.text(), '\n')) {
      if (absl::StartsWith(line, name)) lines.emplace_back(line);
    }
    return lines;
  }

  InProcessChannels channels_;
  FaultFileSystem files_;
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
};

TEST_F(ParameterServiceTest, TrainsChecksPointsAndComesBack) {
  ASSERT_OK(Open(Job({SgdTable("t", 2, v1::SYNC)}, 1)));
  const auto rows = Pull(PullOf(0, 0, {{0, {1, 2}}}));
  ASSERT_OK(rows);
  EXPECT_EQ(Values<float>(rows->tables(0).values()), (std::vector<float>{0, 0, 0, 0}));
  ASSERT_OK(Push(PushOf(0, 0, {{0, {1, 2}, {1, 2, 3, 4}}})));
  const auto moved = Pull(PullOf(0, 1, {{0, {2, 1}}}));
  ASSERT_OK(moved);
  EXPECT_EQ(Values<float>(moved->tables(0).values()), (std::vector<float>{-3, -4, -1, -2}));

  v1::WriteCheckpointRequest write;
  write.set_job_id("job-1");
  write.set_generation(1);
  write.set_step(1);
  write.set_folder("step-1");
  write.set_parts(1);
  v1::WriteCheckpointResponse written;
  ASSERT_OK(Call(&v1::ParameterService::Stub::WriteCheckpoint, write, &written));
  ASSERT_EQ(written.files_size(), 1);
  EXPECT_EQ(written.files(0).name(), "rows-g1-00000-of-00001");
  EXPECT_EQ(written.files(0).rows(0), 2u);
  EXPECT_EQ(ReadRows(files_, "root/step-1/rows-g1-00000-of-00001").at({0, 2}).floats,
            (std::vector<float>{-3, -4}));

  v1::GetStatsRequest ask;
  ask.set_job_id("job-1");
  v1::StatsResponse stats;
  ASSERT_OK(Call(&v1::ParameterService::Stub::GetStats, ask, &stats));
  EXPECT_EQ(stats.applied_steps(), 1u);
  EXPECT_EQ(stats.tables(0).rows(), 2u);

  v1::CloseJobRequest close;
  close.set_job_id("job-1");
  close.set_generation(1);
  v1::CloseJobResponse closed;
  ASSERT_OK(Call(&v1::ParameterService::Stub::CloseJob, close, &closed));
  EXPECT_FAILS(Call(&v1::ParameterService::Stub::GetStats, ask, &stats), StatusCode::kNotFound,
               "job-1");
  EXPECT_FAILS(Pull(PullOf(0, 0, {{0, {1}}})), StatusCode::kUnavailable, "not open");
}

TEST_F(ParameterServiceTest, AssignsDenseParameters) {
  ASSERT_OK(Open(Job({DenseTable("dense", 2, v1::SYNC)}, 1)));
  EXPECT_FAILS(Pull(PullOf(0, 0, {{0, {0}}})), StatusCode::kFailedPrecondition, "block 0");
  v1::AssignResponse response;
  ASSERT_OK(Call(&v1::ParameterService::Stub::Assign, AssignOf({{0, {0}, {1, 2}}}), &response));
  const auto rows = Pull(PullOf(0, 0, {{0, {0}}}));
  ASSERT_OK(rows);
  EXPECT_EQ(Values<float>(rows->tables(0).values()), (std::vector<float>{1, 2}));
}

TEST_F(ParameterServiceTest, APullWaitsForTheOtherRankWithoutHoldingAThread) {
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::SYNC)}, 2)));
  ASSERT_OK(Push(PushOf(0, 0, {{0, {1}, {1}}})));
  // More waiting pulls than the server has threads.
  std::vector<std::future<absl::StatusOr<v1::PullResponse>>> pulls;
  for (int i = 0; i < 40; ++i) {
    pulls.push_back(std::async(std::launch::async, [this] {
      return Pull(PullOf(0, 1, {{0, {1}}}));
    }));
  }
  ASSERT_OK(Push(PushOf(1, 0, {{0, {1}, {1}}})));
  v1::ProgressRequest confirms;
  *confirms.mutable_header() = Header(1);
  confirms.set_confirmed(1);
  v1::ProgressResponse progress;
  ASSERT_OK(Call(&v1::ParameterService::Stub::GetProgress, confirms, &progress));
  EXPECT_EQ(progress.next_push(), 1u);
  for (auto& pull : pulls) {
    const auto rows = pull.get();
    ASSERT_OK(rows);
    EXPECT_EQ(Values<float>(rows->tables(0).values()), std::vector<float>{-2});
  }
}

TEST_F(ParameterServiceTest, ACallersDeadlineIsAnsweredWithTheRanksItWaitedFor) {
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::SYNC)}, 2)));
  ASSERT_OK(Push(PushOf(0, 0, {})));
  // Where the answer is late by a tenth, the caller's own limit comes before it.
  absl::Status status;
  for (int i = 0; i < 20 && !absl::StrContains(status.message(), "from rank"); ++i) {
    status = Pull(PullOf(0, 1, {{0, {1}}}), absl::Milliseconds(1500)).status();
  }
  EXPECT_FAILS(status, StatusCode::kDeadlineExceeded,
               "from rank 1 (no push since the job was opened");
}

TEST_F(ParameterServiceTest, BadInputIsRefusedAndTheServerGoesOn) {
  EXPECT_FAILS(Open(Job({SgdTable("t", 0, v1::SYNC)})), StatusCode::kInvalidArgument, "dim is 0");
  ASSERT_OK(Open(Job({SgdTable("t", 2, v1::ASYNC)})));
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1, 2}}});
  push.mutable_tables(0)->set_keys("123");
  EXPECT_FAILS(Push(push), StatusCode::kInvalidArgument, "3 bytes");
  EXPECT_FAILS(Push(PushOf(0, 0, {{0, {1}, {1, std::nanf("")}}})), StatusCode::kInvalidArgument,
               "key 1");
  v1::PushRequest old = PushOf(0, 0, {{0, {1}, {1, 2}}});
  old.mutable_header()->set_generation(0);
  EXPECT_FAILS(Push(old), StatusCode::kAborted, "generation 0 has ended");
  EXPECT_OK(Push(PushOf(0, 0, {{0, {1}, {1, 2}}})));
}

TEST_F(ParameterServiceTest, AFullDiskAtACheckpointIsAnAnswerNotADeath) {
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::ASYNC)})));
  ASSERT_OK(Push(PushOf(0, 0, {{0, {1}, {1}}})));
  files_.SetCapacity(10);
  v1::WriteCheckpointRequest write;
  write.set_job_id("job-1");
  write.set_generation(1);
  write.set_folder("c");
  write.set_parts(1);
  v1::WriteCheckpointResponse written;
  EXPECT_FAILS(Call(&v1::ParameterService::Stub::WriteCheckpoint, write, &written),
               StatusCode::kResourceExhausted, "rows-g1-00000-of-00001");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
  files_.Repair();
  EXPECT_OK(Call(&v1::ParameterService::Stub::WriteCheckpoint, write, &written));
  EXPECT_OK(Push(PushOf(0, 1, {{0, {1}, {1}}})));
}

// This test is the follower.
TEST_F(ParameterServiceTest, ACheckpointIsWrittenWhenTheFollowerHasItsCut) {
  using Stub = v1::ParameterService::Stub;
  ParameterServer::Options options = Options();
  options.data_folder = testing::TempDir() + "/cut-" + std::to_string(::getpid());
  Start(options);
  v1::PsTable table = SgdTable("t", 1, v1::ASYNC);
  table.mutable_spec()->mutable_expiry()->set_after_steps(5);
  v1::OpenJobRequest job = Job({table}, 1);
  job.set_push_log(v1::RecoverySpec::ASYNC);
  ASSERT_OK(Open(job));
  ASSERT_EQ(Scrape("tessera_ps_log_bytes{").size(), 1u);
  EXPECT_THAT(Scrape("tessera_ps_log_bytes{")[0],
              testing::MatchesRegex("tessera_ps_log_bytes.job=\"job-1\". [1-9][0-9]*"));
  EXPECT_EQ(Scrape("tessera_ps_log_share{").size(), 1u);
  v1::SetFollowerRequest pair;
  pair.set_job_id("job-1");
  pair.set_generation(1);
  pair.set_pair(1);
  pair.set_follower("ps-1");
  v1::SetFollowerResponse told;
  ASSERT_OK(Call(&Stub::SetFollower, pair, &told));
  v1::ReadLogRequest next;
  next.set_job_id("job-1");
  next.set_generation(1);
  next.set_pair(1);
  // Says what it has, and waits for a second where there is no more.
  const auto read = [&] {
    v1::ReadLogResponse answer;
    EXPECT_OK(Call(&Stub::ReadLog, next, &answer));
    for (const v1::LogRecord& record : answer.records()) next.set_next_record(record.number() + 1);
    return answer.records_size();
  };
  while (read() > 0) {
  }

  v1::WriteCheckpointRequest checkpoint;
  checkpoint.set_job_id("job-1");
  checkpoint.set_generation(1);
  checkpoint.set_folder("step-0");
  checkpoint.set_parts(1);
  checkpoint.set_phase(v1::WriteCheckpointRequest::CUT);
  v1::WriteCheckpointResponse cut;
  // Training, which stands for the cut, does not wait for a follower where no row expires.
  checkpoint.set_early(true);
  EXPECT_OK(Call(&Stub::WriteCheckpoint, checkpoint, &cut));
  checkpoint.set_early(false);
  checkpoint.set_phase(v1::WriteCheckpointRequest::WRITE);
  v1::WriteCheckpointResponse files;
  auto written = std::async(std::launch::async,
                            [&] { return Call(&Stub::WriteCheckpoint, checkpoint, &files); });
  EXPECT_EQ(written.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_GT(read(), 0);
  EXPECT_EQ(written.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout)
      << "that it has it is said by its next call";
  read();
  EXPECT_OK(written.get());
  EXPECT_EQ(files.files_size(), 1);
  // Which rows have expired all ps must know, also one that takes this one's place.
  checkpoint.set_phase(v1::WriteCheckpointRequest::CUT);
  checkpoint.set_folder("step-1");
  auto expired = std::async(std::launch::async,
                            [&] { return Call(&Stub::WriteCheckpoint, checkpoint, &cut); });
  EXPECT_EQ(expired.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_GT(read(), 0);
  read();
  EXPECT_OK(expired.get());
  server_ = nullptr;
  std::filesystem::remove_all(options.data_folder);
}

TEST_F(ParameterServiceTest, ALogThatThereIsNoMemoryToReadIsAnAnswerNotADeath) {
  using Stub = v1::ParameterService::Stub;
  WatchedFiles watched(files_);
  std::atomic<bool> fails = false;
  watched.on_open = [&](const std::string&) {
    if (fails) throw std::bad_alloc();
  };
  ParameterServer::Options options = Options();
  options.data_folder = testing::TempDir() + "/no-memory-" + std::to_string(::getpid());
  options.files = &watched;
  Start(options);
  v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::ASYNC)}, 1);
  job.set_push_log(v1::RecoverySpec::ASYNC);
  ASSERT_OK(Open(job));
  v1::SetFollowerRequest pair;
  pair.set_job_id("job-1");
  pair.set_generation(1);
  pair.set_pair(1);
  pair.set_follower("ps-1");
  v1::SetFollowerResponse told;
  ASSERT_OK(Call(&Stub::SetFollower, pair, &told));
  v1::ReadLogRequest next;
  next.set_job_id("job-1");
  next.set_generation(1);
  next.set_pair(1);
  const auto read = [&] {
    v1::ReadLogResponse answer;
    const absl::Status status = Call(&Stub::ReadLog, next, &answer);
    for (const v1::LogRecord& record : answer.records()) next.set_next_record(record.number() + 1);
    return status;
  };
  constexpr char kNoMemory[] = "this ps has no memory for records of a push log";
  fails = true;
  EXPECT_FAILS(read(), StatusCode::kResourceExhausted, kNoMemory);
  fails = false;
  EXPECT_OK(read());
  // Files are opened for another cut: in the thread of the deadlines, and in one of those that
  // answer when something is pushed.
  next.set_cut("another");
  fails = true;
  EXPECT_FAILS(read(), StatusCode::kResourceExhausted, kNoMemory);
  auto waits = std::async(std::launch::async, read);
  absl::SleepFor(absl::Milliseconds(200));
  auto push = std::async(std::launch::async, [&] { return Push(PushOf(0, 0, {{0, {1}, {1}}})); });
  EXPECT_FAILS(waits.get(), StatusCode::kResourceExhausted, kNoMemory);
  fails = false;
  next.clear_cut();
  EXPECT_OK(read());
  EXPECT_OK(read());  // says that it has it
  EXPECT_OK(push.get());
  server_ = nullptr;
  std::filesystem::remove_all(options.data_folder);
}

TEST_F(ParameterServiceTest, RowsThatThereIsNoMemoryToHandOutAreAnAnswerNotADeath) {
  SKIP_WITHOUT_FAILING_MEMORY();
  constexpr uint64_t kKeys = 1 << 15;
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::ASYNC)}, 1, /*partitions=*/1)));
  Block block = {.table = 0, .keys = {}, .values = std::vector<float>(kKeys, 1)};
  for (uint64_t key = 0; key < kKeys; ++key) block.keys.push_back(key);
  ASSERT_OK(Push(PushOf(0, 0, {block})));
  v1::ReadPartitionsRequest request;
  request.set_job_id("job-1");
  request.set_generation(1);
  request.add_partitions(0);
  uint64_t bytes = 0;
  const auto read = [&] {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    const auto stream = stub_->ReadPartitions(&context, request);
    v1::RowChunk chunk;
    for (bytes = 0; stream->Read(&chunk);) bytes += chunk.records().size();
    return FromGrpc(stream->Finish());
  };
  {
    const failing_memory::Bound bound(kKeys * row_file::RecordBytes(1));
    EXPECT_FAILS(read(), StatusCode::kResourceExhausted,
                 "this ps has no memory for rows that are handed out");
  }
  EXPECT_OK(read());
  EXPECT_EQ(bytes, kKeys * row_file::RecordBytes(1));
}

using ParameterServiceDeathTest = ParameterServiceTest;
TEST_F(ParameterServiceDeathTest, WithoutAThreadItFollowsNobodyAndSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto follow = [&] {
    v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::ASYNC)});
    job.set_push_log(v1::RecoverySpec::ASYNC);
    job.set_follow("ps-1");
    job.set_pair(1);
    // What gRPC starts for its first calls is there.
    for (int i = 0; i < 3; ++i) (void)Pull(PullOf(0, 0, {}));
    LimitThreads(0);
    std::fprintf(stderr, "%s\n", Open(job).ToString().c_str());
    // Another pair comes, as it does when this one is given up.
    UnlimitThreads();
    job.set_pair(2);
    _exit(Open(job).ok() ? 0 : 1);
  };
  EXPECT_EXIT(follow(), testing::ExitedWithCode(0),
              "RESOURCE_EXHAUSTED: no thread for a copy of another ps's rows; allow more");
}

TEST_F(ParameterServiceTest, KeysThatAreNotAdmittedYetAreCountedBesideTheOthers) {
  v1::OpenJobRequest job = Job({SgdTable("t", 2, v1::ASYNC)});
  job.mutable_tables(0)->mutable_spec()->mutable_admission()->set_after_sightings(2);
  ASSERT_OK(Open(job));
  ASSERT_OK(Pull(PullOf(0, 0, {{0, {1, 2, 3}}})));
  for (uint64_t step = 0; step < 2; ++step) {
    ASSERT_OK(Push(PushOf(0, step, {{0, {1, 2}, {1, 2, 3, 4}}})));
  }
  ASSERT_OK(Pull(PullOf(0, 2, {{0, {1, 2, 4}}})));
  EXPECT_THAT(Scrape("tessera_ps_pulled_keys_total"),
              ElementsAre("tessera_ps_pulled_keys_total{result=\"absent\"} 0",
                          "tessera_ps_pulled_keys_total{result=\"created\"} 0",
                          "tessera_ps_pulled_keys_total{result=\"hit\"} 2",
                          "tessera_ps_pulled_keys_total{result=\"not_admitted\"} 4"));
}

TEST_F(ParameterServiceTest, WhatAServerPrintsIsWhatWasDone) {
  ASSERT_OK(Open(Job({SgdTable("t", 2, v1::ASYNC), SgdTable("u", 1, v1::ASYNC)})));
  ASSERT_OK(Pull(PullOf(0, 0, {{0, {1, 2}}, {1, {7}}})));
  ASSERT_OK(Pull(PullOf(0, 0, {{0, {2, 3}}})));
  v1::PullRequest look = PullOf(0, 0, {{0, {1, 8, 9}}});
  look.set_read_only(true);
  ASSERT_OK(Pull(look));
  ASSERT_OK(Push(PushOf(0, 0, {{0, {1, 2}, {1, 2, 3, 4}}, {1, {7}, {1}}})));
  EXPECT_FAILS(Push(PushOf(7, 0, {})), StatusCode::kInvalidArgument, "rank 7");
  v1::WriteCheckpointRequest write;
  write.set_job_id("job-1");
  write.set_generation(1);
  write.set_folder("c");
  write.set_parts(1);
  v1::WriteCheckpointResponse first;
  ASSERT_OK(Call(&v1::ParameterService::Stub::WriteCheckpoint, write, &first));
  write.set_base("c");
  write.set_folder("d");
  v1::WriteCheckpointResponse second;
  ASSERT_OK(Call(&v1::ParameterService::Stub::WriteCheckpoint, write, &second));
  ASSERT_EQ(second.files_size(), 2) << "the first one's, linked, and its own";

  EXPECT_THAT(Scrape("tessera_ps_pulled_keys_total"),
              ElementsAre("tessera_ps_pulled_keys_total{result=\"absent\"} 2",
                          "tessera_ps_pulled_keys_total{result=\"created\"} 4",
                          "tessera_ps_pulled_keys_total{result=\"hit\"} 2",
                          "tessera_ps_pulled_keys_total{result=\"not_admitted\"} 0"));
  EXPECT_THAT(Scrape("tessera_ps_pushed_keys_total"),
              ElementsAre("tessera_ps_pushed_keys_total 3"));
  EXPECT_THAT(Scrape("tessera_ps_pull_seconds_count"),
              ElementsAre("tessera_ps_pull_seconds_count 3"));
  EXPECT_THAT(Scrape("tessera_ps_push_seconds_count"),
              ElementsAre("tessera_ps_push_seconds_count 1"));
  EXPECT_THAT(Scrape("tessera_ps_refused_requests_total"),
              ElementsAre("tessera_ps_refused_requests_total{call=\"Push\","
                          "code=\"INVALID_ARGUMENT\"} 1"));
  EXPECT_THAT(Scrape("tessera_ps_received_bytes_total{call=\"Push\"}"),
              ElementsAre(testing::EndsWith(absl::StrCat(
                  " ", PushOf(0, 0, {{0, {1, 2}, {1, 2, 3, 4}}, {1, {7}, {1}}}).ByteSizeLong()))));
  EXPECT_THAT(Scrape("tessera_ps_sent_bytes_total"), testing::SizeIs(1));
  EXPECT_THAT(Scrape("tessera_ps_queued_bytes"), ElementsAre("tessera_ps_queued_bytes 0"));
  EXPECT_THAT(Scrape("tessera_ps_checkpoint_seconds_count"),
              ElementsAre("tessera_ps_checkpoint_seconds_count 2"));
  EXPECT_THAT(Scrape("tessera_ps_checkpoint_bytes_total"),
              ElementsAre(absl::StrCat("tessera_ps_checkpoint_bytes_total ",
                                       first.files(0).bytes() + second.files(1).bytes())));
  EXPECT_THAT(Scrape("tessera_ps_table_rows"),
              ElementsAre("tessera_ps_table_rows{job=\"job-1\",table=\"t\"} 3",
                          "tessera_ps_table_rows{job=\"job-1\",table=\"u\"} 1"));
  EXPECT_THAT(Scrape("tessera_ps_table_bytes"), testing::SizeIs(2));
}

TEST_F(ParameterServiceTest, StatsOfAGenerationAreRefusedAsItsPullsWouldBe) {
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::ASYNC)})));
  ASSERT_OK(Pull(PullOf(0, 0, {{0, {1, 2, 3}}})));
  v1::GetStatsRequest ask;
  ask.set_job_id("job-1");
  ask.set_generation(1);
  v1::StatsResponse stats;
  ASSERT_OK(Call(&v1::ParameterService::Stub::GetStats, ask, &stats));
  EXPECT_EQ(stats.tables(0).rows(), 3u);
  for (const uint64_t other : {0, 2}) {
    ask.set_generation(other);
    EXPECT_FAILS(Call(&v1::ParameterService::Stub::GetStats, ask, &stats), StatusCode::kAborted,
                 "generation");
  }
  ask.set_job_id("job-2");
  EXPECT_FAILS(Call(&v1::ParameterService::Stub::GetStats, ask, &stats), StatusCode::kUnavailable,
               "is not open on this ps");
}

TEST_F(ParameterServiceTest, AStopAnswersTheCallsThatWait) {
  ASSERT_OK(Open(Job({SgdTable("t", 1, v1::SYNC)}, 2)));
  ASSERT_OK(Push(PushOf(0, 0, {})));
  auto pull = std::async(std::launch::async, [this] { return Pull(PullOf(0, 1, {{0, {1}}})); });
  v1::GetStatsRequest ask;
  ask.set_job_id("job-1");
  v1::StatsResponse stats;
  while (stats.waits_size() == 0) {
    ASSERT_OK(Call(&v1::ParameterService::Stub::GetStats, ask, &stats));
  }
  EXPECT_THAT(stats.waits(0), testing::ContainsRegex("rank 0's pull of step 1 waits since [1-9]"));
  server_->Stop(absl::Seconds(5));
  EXPECT_FAILS(pull.get(), StatusCode::kUnavailable, "the ps is stopping");
}

// Bytes that gRPC has carried whole, but that a peer has made up.
TEST_F(ParameterServiceTest, DamagedMessagesGetATypedErrorAndTheServerGoesOn) {
  ASSERT_OK(Open(Job({SgdTable("t", 2, v1::ASYNC), SgdTable("u", 1, v1::ASYNC)})));
  grpc::GenericStub raw(channels_.Connect(server_->address()));
  const auto call = [&raw](const std::string& method, const std::string& bytes) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer answer;
    std::promise<absl::Status> status;
    raw.UnaryCall(&context, "/tessera.v1.ParameterService/" + method, {}, &request, &answer,
                  [&status](grpc::Status s) { status.set_value(FromGrpc(s)); });
    return status.get_future().get();
  };
  const std::string messages[] = {
      PullOf(0, 0, {{0, {1, 2, 3}}, {1, {4, 5}}}).SerializeAsString(),
      PushOf(0, 0, {{0, {1, 2}, {1, 2, 3, 4}}, {1, {9}, {1}}}).SerializeAsString()};
  std::mt19937_64 random(13);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const bool push = i % 2 == 1;
    std::string bytes = messages[push];
    switch (random() % 3) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes.append(1 + random() % 20, static_cast<char>(random()));
        break;
      default:
        for (int flips = 0; flips < 2; ++flips) {
          bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
        }
    }
    const absl::Status status = call(push ? "Push" : i % 4 == 0 ? "Pull" : "LookAhead", bytes);
    if (status.ok()) continue;  // still a legal message
    ++refused;
    ASSERT_THAT(status.code(),
                testing::AnyOf(StatusCode::kInvalidArgument, StatusCode::kAborted,
                               StatusCode::kUnavailable, StatusCode::kDeadlineExceeded))
        << status;
  }
  EXPECT_GT(refused, 1000);
  // Not as a worker: a flipped bit may have said that a later incarnation of rank 0 has called.
  EXPECT_OK(Pull(PullOf(1000, 0, {{0, {1}}}, /*read_only=*/true)));
}

TEST_F(ParameterServiceTest, AnswersThatNobodyTakesStopNewPullsNotTheServer) {
  server_->Stop(absl::ZeroDuration());
  server_.reset();
  ParameterServer::Options options = Options();
  options.max_unsent_bytes = 0;
  auto server = ParameterServer::Start(options);
  ASSERT_OK(server);
  server_ = *std::move(server);
  stub_ = v1::ParameterService::NewStub(channels_.Connect(server_->address()));
  ASSERT_OK(Open(Job({SgdTable("t", 4, v1::ASYNC)})));
  // A caller that repeats after push-back always gets through: nothing stays counted.
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<v1::PullResponse> rows = Pull(PullOf(0, 0, {{0, {1}}}));
    while (absl::IsResourceExhausted(rows.status())) rows = Pull(PullOf(0, 0, {{0, {1}}}));
    ASSERT_OK(rows);
  }
}

}  // namespace
}  // namespace tessera::ps
