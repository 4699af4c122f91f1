#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"
#include "gtest/gtest.h"
#include "master/etcd/etcd_client.h"
#include "tests/common/certificates.h"
#include "tests/common/free_port.h"

namespace tessera::master {

// A real etcd of one member on loopback, with a data folder of its own; with `certificates` it
// speaks TLS and asks its clients for a certificate of the same authority. Ends with this object,
// or with the test's process. Not thread-safe.
class EtcdProcess {
 public:
  // Whether this machine has the program; tests without it are skipped.
  static bool Installed() { return !Program().empty(); }

  explicit EtcdProcess(const Certificates* certificates = nullptr)
      : certificates_(certificates),
        folder_(absl::StrCat(testing::TempDir(), "etcd.", getpid(), ".", FreePortForServer())),
        port_(FreePortForServer()),
        peer_port_(FreePortForServer()) {
    if (certificates != nullptr) security_ = Security::Load(SecurityOf(*certificates)).value();
    channels_ = NewNetworkChannels(security_.get());
    Start();
  }
  ~EtcdProcess() {
    Kill();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // What a client of one with certificates needs: no token, but a certificate.
  static SecurityFiles SecurityOf(const Certificates& certificates) {
    SecurityFiles files = certificates.ForServer();
    files.token = "";
    return files;
  }

  // Returns when it answers.
  void Start() {
    const std::string client =
        absl::StrCat(certificates_ == nullptr ? "http://" : "https://", address());
    const std::string peer = absl::StrCat("http://127.0.0.1:", peer_port_);
    std::vector<std::string> words = {Program(), "--data-dir", folder_, "--listen-client-urls",
                                      client, "--advertise-client-urls", client,
                                      "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                                      peer, "--initial-cluster", absl::StrCat("default=", peer),
                                      // Short, so that leases may be as short as a second.
                                      "--heartbeat-interval", "50", "--election-timeout", "500",
                                      "--logger", "zap", "--log-outputs", "/dev/null"};
    if (certificates_ != nullptr) {
      for (const auto& [flag, file] :
           {std::pair("--cert-file", "server.crt"), std::pair("--key-file", "server.key"),
            std::pair("--trusted-ca-file", "ca.crt")}) {
        words.push_back(flag);
        words.push_back(certificates_->Path(file));
      }
      words.push_back("--client-cert-auth");
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    EtcdClient client_of_etcd({address()}, channels_.get());
    etcdserverpb::RangeRequest request;
    request.set_key("/");
    absl::Status status;
    for (const absl::Time begin = absl::Now(); absl::Now() - begin < absl::Seconds(30);) {
      status = client_of_etcd.Range(request, absl::Seconds(1)).status();
      if (status.ok()) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
    FAIL() << "etcd does not start: " << status;
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // It hangs, its connections stay.
  void Pause() { ::kill(pid_, SIGSTOP); }
  void GoOn() { ::kill(pid_, SIGCONT); }

 private:
  static std::string Program() {
    const char* const path = std::getenv("PATH");
    for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
      const std::string program = absl::StrCat(folder, "/etcd");
      if (::access(program.c_str(), X_OK) == 0) return program;
    }
    return "";
  }

  const Certificates* const certificates_;
  std::unique_ptr<Security> security_;
  std::unique_ptr<Channels> channels_;
  const std::string folder_;
  const int port_;
  const int peer_port_;
  pid_t pid_ = 0;
};

}  // namespace tessera::master
