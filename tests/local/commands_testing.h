#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/commands/tessera_app.h"
#include "common/rpc/channels.h"
#include "gtest/gtest.h"
#include "local/check.h"
#include "local/commands/local_commands.h"
#include "tests/paths.h"

namespace tessera::local {

// The commands as a user types them, on clusters in this process and data of their own.
class LocalCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        (std::string("commands-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ASSERT_EQ(Run({"data", "generate", "--out", data_(), "--samples", "4000"}), 0) << err_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string data_() const { return folder_ / "data"; }
  std::string job_() const { return SourcePath("deploy/jobs/quickstart.yaml"); }

  int Run(const std::vector<std::string>& arguments) {
    char* out = nullptr;
    char* err = nullptr;
    size_t out_size = 0, err_size = 0;
    const std::unique_ptr<Channels> channels = NewNetworkChannels();
    client::InterruptHandler interrupt;
    client::CommandContext context;
    context.channels = channels.get();
    context.interrupt = &interrupt;
    context.out = open_memstream(&out, &out_size);
    context.err = open_memstream(&err, &err_size);
    context.check_model = CheckModel;
    const auto app = client::NewTesseraApp(
        context, {AddLocal, AddCheck, AddPredict, AddEvaluate, AddExport, AddDevices});
    const int code = client::RunTessera(*app, context, arguments);
    std::fclose(context.out);
    std::fclose(context.err);
    out_.assign(out, out_size);
    err_.assign(err, err_size);
    std::free(out);
    std::free(err);
    return code;
  }
  // A short job in this process; `more` follows.
  int RunLocal(const std::string& work, std::vector<std::string> more,
               const std::string& workers = "2") {
    std::vector<std::string> arguments = {
        "local", job_(),       "--data",       data_(), "--in-process",  "--workers",
        workers, "--work-dir", folder_ / work, "--set", "train.epochs=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  // Of the last line of stdout.
  nlohmann::json LastObject() const {
    const std::string text = out_.substr(0, out_.size() - 1);
    const size_t begin = text.rfind('\n');
    return nlohmann::json::parse(begin == std::string::npos ? text : text.substr(begin + 1),
                                 nullptr, false);
  }

  std::filesystem::path folder_;
  std::string out_, err_;
};

}  // namespace tessera::local
