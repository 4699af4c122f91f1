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
#include "common/rpc/address.h"
#include "common/rpc/server.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tessera/v1/metrics.grpc.pb.h"

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

// Who answers a call, by a channel's own choice.
std::string Answers(const std::shared_ptr<grpc::Channel>& channel) {
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < absl::Seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::GetMetricsResponse response;
    const grpc::Status status =
        v1::MetricsService::Stub(channel).GetMetrics(&context, {}, &response);
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return context.peer();
    absl::SleepFor(absl::Milliseconds(20));
  }
  return "nobody";
}

TEST(NetworkChannels, AListFindsTheOneThatServesAndTheNextOne) {
  auto first = RpcServer::Start(ServerOptions(), {});
  ASSERT_TRUE(first.ok());
  std::string free;
  {
    const auto other = RpcServer::Start(ServerOptions(), {});
    ASSERT_TRUE(other.ok());
    free = (*other)->address();
  }
  const std::string port = free.substr(free.rfind(':') + 1);
  const auto channel = NewNetworkChannels()->Connect(
      absl::StrCat("127.0.0.1:1,localhost:", port, ",", (*first)->address()));
  EXPECT_EQ(Answers(channel), absl::StrCat("ipv4:", (*first)->address()));
  first->reset();
  ServerOptions options;
  options.listen = free;
  const auto second = RpcServer::Start(options, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Answers(channel), absl::StrCat("ipv4:", free));
}

grpc::StatusCode CodeOfACall(const std::string& address) {
  const auto channel = NewNetworkChannels()->Connect(address);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  v1::GetMetricsResponse response;
  return v1::MetricsService::Stub(channel).GetMetrics(&context, {}, &response).error_code();
}

TEST(NetworkChannels, AListOfNamesThatNobodyHasFailsItsCalls) {
  EXPECT_EQ(CodeOfACall("no-such-host.invalid:1,nor-this.invalid:1"),
            grpc::StatusCode::UNAVAILABLE);
}

// One above 65535 was taken modulo 65536.
TEST(NetworkChannels, APortThatThereIsNotReachesNobody) {
  const auto server = RpcServer::Start(ServerOptions(), {});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  ASSERT_EQ(CodeOfACall(address), grpc::StatusCode::UNIMPLEMENTED) << "is there";
  const int port = ParseAddress(address)->port;
  const std::string wrong = absl::StrCat("127.0.0.1:", port + 65536);
  for (const std::string& called : {wrong, absl::StrCat(wrong, ",", wrong),
                                    std::string("127.0.0.1"), std::string(":1"), std::string()}) {
    EXPECT_EQ(CodeOfACall(called), grpc::StatusCode::UNAVAILABLE) << called;
  }
}

}  // namespace
}  // namespace tessera
