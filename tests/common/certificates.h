#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"
#include "gtest/gtest.h"
#include "tests/paths.h"

namespace tessera {

// What deploy/make-certificates makes, in a folder that goes with this object.
class Certificates {
 public:
  explicit Certificates(const std::string& name, const std::string& arguments = "")
      : folder_(absl::StrCat(testing::TempDir(), "certificates.", getpid(), ".", name)) {
    std::filesystem::remove_all(folder_);
    Make(arguments);
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }

  void Make(const std::string& arguments = "") const {
    Run(absl::StrCat(SourcePath("deploy/make-certificates"), " ", folder_, " ", arguments,
                     " >/dev/null"));
  }
  void Run(const std::string& command) const {
    ASSERT_EQ(std::system(absl::StrCat("cd ", folder_, " 2>/dev/null; ", command).c_str()), 0)
        << command;
  }
  std::string Path(const std::string& file) const { return absl::StrCat(folder_, "/", file); }
  SecurityFiles ForServer() const {
    SecurityFiles files = ForClient();
    files.certificate = Path("server.crt");
    files.key = Path("server.key");
    return files;
  }
  SecurityFiles ForClient() const {
    SecurityFiles files;
    files.ca = Path("ca.crt");
    files.token = Path("token");
    return files;
  }

 private:
  const std::string folder_;
};

}  // namespace tessera
