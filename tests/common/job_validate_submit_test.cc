#include <string>

#include "common/job/defaults.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/job_validate_testing.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ValidateSubmit, RefusesStepsWhoseRowsDoNotFitAPush) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_tables(1)->set_dim(4096);
  EXPECT_EQ(BatchRowBytesOf(spec, 30000).on_wire, 30000u * (2 * (4096 * 4 + 8) + 1 * 4 + 8));
  EXPECT_EQ(BatchRowBytesOf(spec, 1000, {0, 0, 1, 2.5, 0}).on_wire,
            3500u * (4096 * 4 + 8) + 1000u * (1 * 4 + 8));
  spec.mutable_train()->set_batch_size(65536);
  const auto message = [&request](uint32_t workers, uint32_t ps) {
    request.set_workers(workers);
    request.set_ps(ps);
    return std::string(ValidateSubmit(request).message());
  };
  EXPECT_THAT(message(1, 1),
              StartsWith("train.batch_size: the rows of 65536 samples take 2049 MiB in one push to "
                         "each of 1 ps, more than the 960 MiB that fit; use batch_size 30"));
  EXPECT_EQ(message(3, 1), "");
  EXPECT_EQ(message(1, 3), "");
  EXPECT_EQ(message(0, 1), "") << "as many workers as there are";
  EXPECT_EQ(message(1, 0), "") << "as many ps as there are";
  spec.mutable_consistency()->set_sparse(v1::ASYNC);
  spec.mutable_consistency()->set_dense(v1::ASYNC);
  EXPECT_THAT(message(3, 1), StartsWith("train.batch_size: the rows of 65536 samples")) << "each";
}

TEST(ValidateSubmit, NoSumOfRowsIsSmallAgain) {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_tables(1)->set_dim(4096);
  EXPECT_EQ(BatchRowBytesOf(spec, uint64_t{1} << 50).on_wire, 1000000000000000000u);
}

TEST(ValidateSubmit, WorkersMayOutnumberTheSamplesOfABatchThatTheyDoNotShare) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  request.mutable_spec()->mutable_train()->set_batch_size(1);
  request.set_workers(2);
  v1::ConsistencySpec& consistency = *request.mutable_spec()->mutable_consistency();
  consistency.set_sparse(v1::SYNC);
  consistency.set_dense(v1::SYNC);
  EXPECT_THAT(std::string(ValidateSubmit(request).message()),
              StartsWith("workers: 2 workers cannot share a batch of 1"));
  consistency.set_sparse(v1::ASYNC);
  consistency.set_dense(v1::ASYNC);
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus());
}

TEST(ValidateSubmit, ASyncJobsWindowHoldsABatch) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_data()->set_shuffle_window_records(100);
  spec.mutable_data()->set_shard_records(100);
  spec.mutable_train()->set_batch_size(201);
  request.set_workers(2);
  EXPECT_THAT(
      std::string(ValidateSubmit(request).message()),
      StartsWith("data.shuffle_window_records: found 100 of each of 2 workers, fewer in all "
                 "than train.batch_size: 201; "));
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), HasSubstr("set it to 101 or more"));
  // They share the window of all.
  request.set_workers(3);
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus());
  request.set_workers(1);
  spec.mutable_consistency()->set_sparse(v1::ASYNC);
  spec.mutable_consistency()->set_dense(v1::ASYNC);
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus()) << "its windows are rounded up to batches";
}

TEST(ValidateSubmit, AJobHasNoMoreProcessesThanOneMayBeScaledTo) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  request.set_ps(1024);
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus());
  request.set_ps(4294967295);
  EXPECT_EQ(std::string(ValidateSubmit(request).message()),
            "ps: found 4294967295, expected at most 1024");
  request.set_ps(1);
  request.set_workers(1025);
  EXPECT_EQ(std::string(ValidateSubmit(request).message()),
            "workers: found 1025, expected at most 1024");
}

TEST(ValidateSubmit, AsksPredictionsForACheckpointAnOutputAndATestSplit) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus());
  request.set_task(v1::PREDICT);
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), StartsWith("start.checkpoint: "));
  request.mutable_spec()->mutable_start()->set_checkpoint("job/best");
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), StartsWith("data.test.files: "));
  request.mutable_spec()->mutable_data()->mutable_test()->add_files("test.csv");
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), StartsWith("output: "));
  request.set_output("../p.csv");
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), StartsWith("output: "));
  request.set_output("p.csv");
  EXPECT_EQ(ValidateSubmit(request), absl::OkStatus());
  request.set_workers(1025);
  EXPECT_THAT(std::string(ValidateSubmit(request).message()), StartsWith("workers: "));
}

TEST(ValidateSubmit, RefusesAnOutputThatNoFileCanHave) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  request.set_task(v1::PREDICT);
  request.mutable_spec()->mutable_start()->set_checkpoint("job/best");
  request.mutable_spec()->mutable_data()->mutable_test()->add_files("test.csv");
  const auto message = [&request](const std::string& output) {
    request.set_output(output);
    return std::string(ValidateSubmit(request).message());
  };
  const std::string folder(255, 'f');
  const std::string file(150, 'p');
  EXPECT_EQ(message("./" + folder + "/./a.b/..c/" + file), "");
  EXPECT_EQ(message(std::string("p\0.csv", 6)),
            "output: found a zero byte at byte 1; expected none");
  for (const std::string a_folder : {".", "out/", "out/."}) {
    EXPECT_EQ(message(a_folder),
              "output: found '" + a_folder + "', a folder; expected a file's path");
  }
  EXPECT_EQ(message(folder + "f/p.csv"), "output: found the name '" + folder.substr(0, 50) +
                                             "...' of 256 bytes; expected at most 255");
  EXPECT_EQ(message("out/p" + file),
            "output: found the name '" + file.substr(0, 50) +
                "...' of 151 bytes; expected at most 150, since more is added to it while the file "
                "is written");
  EXPECT_THAT(message(std::string(5000, 'p')), StartsWith("output: found a text of 5000 bytes"));
  EXPECT_THAT(message("/p.csv"), StartsWith("output: found the absolute path"));
}

TEST(ValidateSubmit, AsksEvaluationsForACheckpointAndASplit) {
  v1::SubmitRequest request;
  *request.mutable_spec() = GoodSpec();
  request.mutable_spec()->mutable_data()->clear_validation();
  request.set_task(v1::EVALUATE);
  EXPECT_THAT(std::string(ValidateSubmit(request).message()),
              StartsWith("start.checkpoint: missing; evaluation needs"));
  request.mutable_spec()->mutable_start()->set_checkpoint("job/best");
  EXPECT_THAT(std::string(ValidateSubmit(request).message()),
              StartsWith("data.test.files: empty, and so is data.validation.files"));
  for (const bool test : {false, true}) {
    v1::SubmitRequest one = request;
    v1::DataSpec& data = *one.mutable_spec()->mutable_data();
    (test ? data.mutable_test() : data.mutable_validation())->add_files("some.csv");
    EXPECT_EQ(ValidateSubmit(one), absl::OkStatus());
    one.set_output("p.csv");
    EXPECT_THAT(std::string(ValidateSubmit(one).message()), StartsWith("output: belongs to"));
  }
}

}  // namespace
}  // namespace tessera
