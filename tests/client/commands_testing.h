#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "client/commands/tessera_app.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_job_service.h"

namespace tessera::client {

// The whole program, less main, against a fake master.
class CommandsTest : public testing::Test {
 protected:
  static constexpr char kJob[] = R"(name: clicks
data:
  format: csv
  columns:
    - {name: label, role: label}
    - {name: user, role: sparse, table: emb}
  train: {files: train.csv}
tables:
  - name: emb
    dim: 8
    initializer: {normal: {stddev: 0.01}}
    optimizer: {learning_rate: 0.001, adam: {}}
model: {name: deepfm, optimizer: {learning_rate: 0.001, adam: {}}}
train: {batch_size: 256, epochs: 2}
)";

  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    job_ = folder_ / "job.yaml";
    std::ofstream(job_) << kJob;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What it prints is in out_, unless `out_file` is where to.
  int Run(const std::vector<std::string>& arguments, const char* out_file = nullptr) {
    char* out = nullptr;
    char* err = nullptr;
    size_t out_size = 0, err_size = 0;
    InterruptHandler interrupt;
    CommandContext context;
    context.channels = &master_.channels;
    context.interrupt = &interrupt;
    context.out = out_file != nullptr ? std::fopen(out_file, "w") : open_memstream(&out, &out_size);
    context.err = open_memstream(&err, &err_size);
    context.check_model = check_model_;
    const auto app = NewTesseraApp(context, {add_});
    const int code = RunTessera(*app, context, arguments);
    std::fclose(context.out);
    std::fclose(context.err);
    out_.assign(out == nullptr ? "" : out, out_size);
    err_.assign(err, err_size);
    std::free(out);
    std::free(err);
    return code;
  }
  static v1::JobStatus Job(v1::JobState state) {
    v1::JobStatus job;
    job.set_job_id("clicks-1");
    job.set_state(state);
    job.set_step(9);
    return job;
  }

  FakeMaster master_;
  std::filesystem::path folder_, job_;
  std::function<absl::StatusOr<std::vector<std::string>>(const LoadedJob&)> check_model_;
  std::function<void(CLI::App&, CommandContext&)> add_ = [](CLI::App&, CommandContext&) {};
  std::string out_, err_;
};

}  // namespace tessera::client
