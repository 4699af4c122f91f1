#include "common/rpc/address.h"
#include "common/rpc/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/listener.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "grpcpp/completion_queue.h"
#include "gtest/gtest.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/health.h"

namespace tessera {
namespace {

TEST(RpcServer, AnAddressThatIsTakenIsAnErrorAndNoLineOfGrpc) {
  const auto first = RpcServer::Start({}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  testing::internal::CaptureStderr();
  const auto second = RpcServer::Start({.listen = (*first)->address()}, {});
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              testing::AllOf(testing::HasSubstr((*first)->address()),
                             testing::HasSubstr("the port is in use")));
  EXPECT_EQ(errors, "");
}

sockaddr_in Loopback(const std::string& address) {
  sockaddr_in to = {};
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return to;
}

// Whether a server of HTTP/2 has said something to this connection in time.
bool Answers(int fd) {
  pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
  char byte;
  return ::poll(&polled, 1, 10'000) == 1 && ::recv(fd, &byte, 1, 0) == 1;
}

// While it has none but those that it keeps for its files.
TEST(RpcServer, TakesTheConnectionsThatCameWhileItHadNoFileDescriptors) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channels = NewNetworkChannels();
  const auto channel = channels->Connect((*server)->address());
  EXPECT_EQ(HealthAt(channel), "SERVING");
  const sockaddr_in to = Loopback((*server)->address());
  std::vector<int> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // So many above those that are open, and none left below.
  constexpr rlim_t kKept = 40;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 8 * kKept;
  const auto first_kept = static_cast<int>(none.rlim_cur - kKept);
  ASSERT_LT(clients.back(), first_kept);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<int> fillers;
  // A server that has just begun may have some for a moment.
  for (int quiet = 0; quiet < 5; ++quiet) {
    while (true) {
      const int fd = ::dup(clients[0]);
      ASSERT_GE(fd, 0);
      if (fd >= first_kept) {
        ::close(fd);
        break;
      }
      fillers.push_back(fd);
      quiet = 0;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  for (const int fd : clients) {
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  pollfd first = {.fd = clients[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&first, 1, 300), 0) << "it had a file descriptor";
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(file, first_kept) << "connections have those that are kept for files";
  ::close(file);
  // Over a connection that there is.
  while (HealthAt(channel) != "NOT_SERVING") absl::SleepFor(absl::Milliseconds(1));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const int fd : fillers) ::close(fd);
  for (const int fd : clients) {
    EXPECT_TRUE(Answers(fd));
    ::close(fd);
  }
  while (HealthAt(channel) != "SERVING") absl::SleepFor(absl::Milliseconds(1));
}

// Keeps every call, with its message, until its caller gives it up.
class Keeper final
    : public v1::MetricsService::WithRawCallbackMethod_GetMetrics<v1::MetricsService::Service> {
 public:
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext*, const grpc::ByteBuffer*,
                                       grpc::ByteBuffer*) override {
    class Kept final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Kept();
  }
};

// Calls at once, each on a connection of its own, that end after some seconds.
std::vector<grpc::StatusCode> CallAtOnce(const std::string& address, int calls, size_t bytes) {
  const auto channels = NewNetworkChannels();
  const grpc::Slice message(std::string(bytes, 'x'));
  std::vector<std::thread> threads;
  std::vector<grpc::StatusCode> codes(calls);
  for (int i = 0; i < calls; ++i) {
    threads.emplace_back([&, i] {
      grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
          channels->Connect(address));
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
      grpc::CompletionQueue queue;
      const grpc::ByteBuffer request(&message, 1);
      grpc::ByteBuffer response;
      grpc::Status status;
      const auto call =
          stub.PrepareUnaryCall(&context, "/tessera.v1.MetricsService/GetMetrics", request, &queue);
      call->StartCall();
      call->Finish(&response, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      codes[i] = status.error_code();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return codes;
}

TEST(RpcServer, TakesNoMoreBytesOfMessagesAtOnceThanItMay) {
  constexpr size_t kMessage = 8 << 20;
  constexpr int kHasRoomFor = 8;
  Keeper keeper;
  const auto server = RpcServer::Start({.max_received_bytes = kHasRoomFor * kMessage}, {&keeper});
  ASSERT_TRUE(server.ok()) << server.status();
  int kept = 0;
  for (const grpc::StatusCode code : CallAtOnce((*server)->address(), 30, kMessage)) {
    // All may be called again.
    EXPECT_THAT(
        code, testing::AnyOf(grpc::RESOURCE_EXHAUSTED, grpc::UNAVAILABLE, grpc::DEADLINE_EXCEEDED));
    kept += code == grpc::DEADLINE_EXCEEDED;
  }
  EXPECT_LE(kept, kHasRoomFor);
  // And then serves as before, as soon as it has let go of what those calls brought.
  const auto health = [&] { return HealthAt(NewNetworkChannels()->Connect((*server)->address())); };
  std::string last = health();
  for (const absl::Time end = absl::Now() + absl::Seconds(20);
       last != "SERVING" && absl::Now() < end; last = health()) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(last, "SERVING");
}

// HTTP/2's settings are the first that a server says (RFC 9113, 6.5).
TEST(RpcServer, TellsAConnectionHowManyCallsItMayHaveAtOnce) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = Loopback((*server)->address());
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  std::vector<uint8_t> settings(9);
  ASSERT_EQ(::recv(fd, settings.data(), settings.size(), MSG_WAITALL), 9);
  ASSERT_EQ(settings[3], 4);  // the type of the frame
  settings.resize(settings[1] << 8 | settings[2]);
  ASSERT_EQ(::recv(fd, settings.data(), settings.size(), MSG_WAITALL), ssize_t(settings.size()));
  ::close(fd);
  std::optional<int> calls;
  for (size_t i = 0; i + 6 <= settings.size(); i += 6) {
    if (settings[i] != 0 || settings[i + 1] != 3) continue;  // of streams at once
    calls = settings[i + 2] << 24 | settings[i + 3] << 16 | settings[i + 4] << 8 | settings[i + 5];
  }
  EXPECT_EQ(calls, kMaxCallsOfConnection);
}

// A call of Health/Watch: what the server says of itself, each time that it is another thing.
class HealthWatch {
 public:
  explicit HealthWatch(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    call_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(this);
    Await();
    call_->WriteLast(grpc::ByteBuffer(nullptr, 0), {}, this);
    Await();
  }
  ~HealthWatch() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, this);
    Await();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }
  std::string Next() {
    grpc::ByteBuffer answer;
    call_->Read(&answer, this);
    return Await() ? HealthIn(answer) : "the end";
  }

 private:
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(RpcServer, HealthSaysServingUntilItIsToldOtherwise) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channels = NewNetworkChannels();
  const auto channel = channels->Connect((*server)->address());
  EXPECT_EQ(HealthAt(channel), "SERVING");
  (*server)->SayNotServing();
  EXPECT_EQ(HealthAt(channel), "NOT_SERVING");
  (*server)->SayNotServing();
  EXPECT_EQ(HealthAt(channel), "NOT_SERVING");
}

TEST(RpcServer, WhoWatchesItsHealthHearsThatItStops) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channels = NewNetworkChannels();
  std::thread stops;
  {
    HealthWatch watch(channels->Connect((*server)->address()));
    EXPECT_EQ(watch.Next(), "SERVING");
    stops = std::thread([&] { (*server)->Shutdown(absl::Hours(1)); });
    EXPECT_EQ(watch.Next(), "NOT_SERVING");
  }
  stops.join();
}

TEST(RpcServer, ListensOnAllAddressesOfAName) {
  const auto server = RpcServer::Start({.listen = "localhost:0"}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->address(), testing::MatchesRegex("localhost:[0-9]+"));
  const std::string port = (*server)->address().substr(std::string("localhost:").size());
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  ASSERT_EQ(::getaddrinfo("localhost", port.c_str(), &hints, &found), 0);
  int answering = 0;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int fd = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (::connect(fd, info->ai_addr, info->ai_addrlen) == 0) {
      EXPECT_TRUE(Answers(fd));
      ++answering;
    } else {
      EXPECT_EQ(errno, EADDRNOTAVAIL) << "this machine has the address";
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  EXPECT_GT(answering, 0);
}

// In a process that sees another /etc/hosts.
TEST(ListenerDeathTest, ListensOnceOnAnAddressThatAHostHasTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kMayNot = 77;
  const auto listen = [] {
    const std::string hosts = absl::StrCat(testing::TempDir(), "hosts-", ::getpid());
    std::ofstream(hosts) << "127.0.0.1 twice.test\n127.0.0.1 other.test twice.test\n";
    const bool seen = ::unshare(CLONE_NEWNS) == 0 &&
                      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      ::mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
    ::unlink(hosts.c_str());
    if (!seen) ::_exit(kMayNot);
    const auto listener = Listener::Bind("twice.test:0");
    std::fprintf(stderr, "%s", listener.status().ToString().c_str());
    ::_exit(listener.ok() ? 0 : 1);
  };
  bool may = true;
  const auto ended = [&may](int status) {
    may = !WIFEXITED(status) || WEXITSTATUS(status) != kMayNot;
    return !may || testing::ExitedWithCode(0)(status);
  };
  EXPECT_EXIT(listen(), ended, "");
  if (!may) GTEST_SKIP() << "only root may have another /etc/hosts";
}

TEST(RpcServer, SaysWhyItCannotListen) {
  const auto error = [](const std::string& listen) {
    return std::string(
        RpcServer::Start({.listen = listen, .insecure = true}, {}).status().message());
  };
  // Of documentation, nobody's.
  EXPECT_EQ(error("192.0.2.1:0"),
            "cannot listen on 192.0.2.1:0: the address is not this machine's; choose another with "
            "--listen");
  // One above 65535 was taken modulo 65536.
  for (const char* wrong : {"127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1",
                            "127.0.0.1:", "127.0.0.1: 1", ""}) {
    EXPECT_EQ(error(wrong), absl::StrCat("listen address is \"", wrong,
                                         "\", expected host:port with a port from 0 to 65535"));
  }
  EXPECT_THAT(error("no-such-host.invalid:0"),
              testing::StartsWith("cannot listen on no-such-host.invalid:0: "));
}

TEST(RpcServer, TakesNobodyOnceItIsShutDown) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Shutdown(absl::ZeroDuration());
  // The port is free.
  const auto next = RpcServer::Start({.listen = (*server)->address()}, {});
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST(Address, LoopbackIsWhatOtherMachinesCannotReach) {
  for (const char* here : {"127.0.0.1:1", "127.1.2.3:0", "localhost:1", "[::1]:1", "127.1:1"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  for (const char* elsewhere :
       {"127.example.org:1", "127.0.0.1", "127.0.0.1.example.org:1", "128.0.0.1:1", "localhost.a:1",
        "0.0.0.0:1", "[::]:1", "[::2]:1", ":1", ""}) {
    EXPECT_FALSE(IsLoopback(elsewhere)) << elsewhere;
  }
}

TEST(Address, OfIPv6StandsInBrackets) {
  EXPECT_EQ(ParseServerAddress("[fd00::7]:7070")->host, "fd00::7");
  for (const char* bare : {"::1:7070", "fd00::7:7070", "127.0.0.1:1:7070", ":::7071"}) {
    EXPECT_THAT(std::string(ParseServerAddress(bare).status().message()),
                testing::HasSubstr("an IPv6 address stands in brackets before its port"))
        << bare;
    EXPECT_FALSE(IsWildcard(bare)) << bare;
  }
}

TEST(Address, KnowsThoseThatNameNoMachine) {
  EXPECT_TRUE(IsWildcard("0.0.0.0:7071"));
  EXPECT_TRUE(IsWildcard("[::]:7071"));
  EXPECT_TRUE(IsWildcard(":7071"));
  EXPECT_TRUE(IsWildcard("0:7071"));
  EXPECT_TRUE(IsWildcard("[::0]:7071"));
  EXPECT_TRUE(IsWildcard("[0:0:0:0:0:0:0:0]:7071"));
  EXPECT_FALSE(IsWildcard("10.0.0.7:7071"));
  EXPECT_FALSE(IsWildcard("[::1]:7071"));
  EXPECT_FALSE(IsWildcard("ps-0"));
}

// gRPC takes 8 KB of metadata, the message among them, and a caller with a longer one would learn
// nothing of what is wrong.
TEST(RpcStatus, ALongMessageIsCutWhereItsCharactersEnd) {
  EXPECT_EQ(ToGrpc(absl::NotFoundError(std::string(5000, 'x'))).error_message(),
            std::string(5000, 'x'));
  const grpc::Status cut = ToGrpc(absl::NotFoundError(std::string(20'000, 'x')));
  EXPECT_EQ(cut.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_LT(cut.error_message().size(), 6100u);
  EXPECT_THAT(cut.error_message(), testing::EndsWith("xx ... (cut, of 20000 bytes)"));
  std::string wide = "a";
  for (int i = 0; i < 3000; ++i) wide += "\u00e9";  // of two bytes
  const std::string text = ToGrpc(absl::NotFoundError(wide)).error_message();
  EXPECT_LT(text.size(), 2100u);
  EXPECT_THAT(text, testing::EndsWith("\u00e9 ... (cut, of 6001 bytes)"));
}

TEST(RpcStatus, AnErrorWithoutAMessageIsNamedByItsCode) {
  EXPECT_EQ(FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "")),
            absl::InternalError("INTERNAL without a message"));
  EXPECT_EQ(FromGrpc(grpc::Status::OK), absl::OkStatus());
}

}  // namespace
}  // namespace tessera
