#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tessera::local {

// An empty folder of the test that is running.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string("local-") +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name) << text;
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace tessera::local
