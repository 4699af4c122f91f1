#include "common/rpc/channels.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

// A peer of HTTP/2 that says its first word late, to each that connects.
class LatePeer {
 public:
  explicit LatePeer(absl::Duration late) : late_(late) {
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&here), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    port_ = ntohs(here.sin_port);
    thread_ = std::thread([this] { Accept(); });
  }
  ~LatePeer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int connection : connections_) ::close(connection);
    ::close(listener_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int connected() const { return connected_.load(); }

 private:
  void Accept() {
    while (true) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      connections_.push_back(connection);
      ++connected_;
      absl::SleepFor(late_);
      constexpr char kSettings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
      ::send(connection, kSettings, sizeof(kSettings), MSG_NOSIGNAL);
    }
  }

  const absl::Duration late_;
  const int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
  std::vector<int> connections_;
  std::atomic<int> connected_{0};
  std::thread thread_;
};

TEST(NetworkChannels, APeerThatAnswersLateIsWaitedForAndNotConnectedToAnew) {
  LatePeer peer(absl::Milliseconds(700));
  const auto channel = NewNetworkChannels()->Connect(peer.address());
  EXPECT_TRUE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20))));
  EXPECT_EQ(peer.connected(), 1);
}

}  // namespace
}  // namespace tessera
