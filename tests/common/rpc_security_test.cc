#include "common/rpc/certificates_in_force.h"
#include "common/rpc/security.h"

#include <chrono>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/file_system.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/rpc/token_file.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/certificates.h"

namespace tessera {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// Holds what a channel needs.
class Client {
 public:
  explicit Client(const SecurityFiles& files) : security_(Security::Load(files).value()) {
    channels_ = NewNetworkChannels(security_.get());
  }
  Client() : channels_(NewNetworkChannels()) {}

  std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
    return channels_->Connect(address);
  }

 private:
  std::unique_ptr<Security> security_;
  std::unique_ptr<Channels> channels_;
};

// UNIMPLEMENTED: the call has come through, to a server that has no services.
absl::Status Call(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  v1::GetMetricsResponse response;
  return FromGrpc(v1::MetricsService::Stub(channel).GetMetrics(&context, {}, &response));
}

bool Eventually(const std::function<bool()>& true_now) {
  const absl::Time begin = absl::Now();
  while (!true_now()) {
    if (absl::Now() - begin > absl::Seconds(20)) return false;
    absl::SleepFor(absl::Milliseconds(50));
  }
  return true;
}

class RpcSecurity : public testing::Test {
 protected:
  void SetUp() override {
    security_ = Security::Load(certificates_.ForServer()).value();
    auto server = RpcServer::Start({.security = security_.get()}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  StatusCode CallBy(const SecurityFiles& files) {
    return Call(Client(files).Connect(server_->address())).code();
  }

  const Certificates certificates_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  std::unique_ptr<Security> security_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(RpcSecurity, OnlyWhoHasTheTokenIsServed) {
  EXPECT_EQ(CallBy(certificates_.ForClient()), StatusCode::kUnimplemented);
  SecurityFiles files = certificates_.ForClient();
  files.token = "";
  EXPECT_THAT(Call(Client(files).Connect(server_->address())).ToString(),
              AllOf(HasSubstr("UNAUTHENTICATED"), HasSubstr("needs a token (--token-file)")));
  files.token = certificates_.Path("another");
  certificates_.Run("openssl rand -hex 32 > another");
  EXPECT_THAT(Call(Client(files).Connect(server_->address())).ToString(),
              AllOf(HasSubstr("UNAUTHENTICATED"), HasSubstr("is none of those that count here")));
}

TEST_F(RpcSecurity, OnlyTheServerThatTheAuthorityHasSignedIsCalled) {
  const Certificates others("others");
  SecurityFiles files = certificates_.ForClient();
  files.ca = others.Path("ca.crt");
  EXPECT_THAT(Call(Client(files).Connect(server_->address())).ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("certificate verify failed")));
  EXPECT_EQ(Call(Client().Connect(server_->address())).code(), StatusCode::kUnavailable)
      << "without TLS";
}

TEST_F(RpcSecurity, WhereOneSideAloneSpeaksTlsTheErrorSaysSo) {
  EXPECT_THAT(Call(Client().Connect(server_->address())).ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("is it a server with TLS?")));
  const auto plain = RpcServer::Start({}, {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(Call(Client(certificates_.ForClient()).Connect((*plain)->address())).ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("is it a server without TLS?")));
  // Where nobody listens it is no matter of TLS.
  const std::string gone = (*plain)->address();
  (*plain)->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(Call(Client().Connect(gone)).ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), testing::Not(HasSubstr("TLS"))));
}

TEST_F(RpcSecurity, ACertificateIsForTheHostThatIsCalledOrTheNameThatIsGiven) {
  certificates_.Make("elsewhere.example cluster-7");
  SecurityFiles files = certificates_.ForClient();
  EXPECT_TRUE(Eventually([&] { return CallBy(files) == StatusCode::kUnavailable; }));
  files.server_name = "cluster-7";
  EXPECT_EQ(CallBy(files), StatusCode::kUnimplemented);
  files.server_name = "cluster-8";
  EXPECT_EQ(CallBy(files), StatusCode::kUnavailable);
}

TEST_F(RpcSecurity, ANewAuthorityTakesThePlaceOfTheOldOneWhileConnectionsGoOn) {
  SecurityFiles old = certificates_.ForClient();
  old.ca = certificates_.Path("old.crt");
  certificates_.Run("cp ca.crt old.crt");
  Client before(certificates_.ForClient());
  const auto kept = before.Connect(server_->address());
  ASSERT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
  // The clients' files first, as a cluster is told to: then they trust both.
  certificates_.Make("--new-ca");
  EXPECT_TRUE(Eventually([&] { return CallBy(old) == StatusCode::kUnavailable; }))
      << "the server still shows its old certificate";
  EXPECT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(Eventually([&] {
    return Call(before.Connect(server_->address())).code() == StatusCode::kUnimplemented;
  })) << "a client that was there before has not read its new file";
}

// As a ps is, which calls the master and is called.
TEST_F(RpcSecurity, WhoServesAndCallsTakesUpBothItsFiles) {
  const auto channels = NewNetworkChannels(security_.get());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Call(channels->Connect(server_->address())).code(), StatusCode::kUnimplemented);
  }
  const auto kept = channels->Connect(server_->address());
  ASSERT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    SecurityFiles old = certificates_.ForClient();
    old.ca = certificates_.Path("old.crt");
    certificates_.Run("cp ca.crt old.crt");
    certificates_.Make("--new-ca");
    EXPECT_TRUE(Eventually([&] { return CallBy(old) == StatusCode::kUnavailable; }))
        << "the server still shows its old certificate";
    EXPECT_TRUE(Eventually([&] {
      return Call(channels->Connect(server_->address())).code() == StatusCode::kUnimplemented;
    })) << "it does not know the new authority as a client";
    EXPECT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
  }
}

// Replaced one by one, as by hand; gRPC alone refuses all connections in between.
TEST_F(RpcSecurity, AKeyWhoseCertificateIsNotThereYetLeavesTheOldPairInForce) {
  Client client(certificates_.ForClient());
  const auto kept = client.Connect(server_->address());
  ASSERT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
  SecurityFiles old = certificates_.ForClient();
  old.ca = certificates_.Path("old.crt");
  certificates_.Run("cp ca.crt old.crt; mkdir new; cp -p ca.crt ca.key new");
  certificates_.Run(SourcePath("deploy/make-certificates") + " new --new-ca >/dev/null");
  certificates_.Run("mv new/ca.crt ca.crt; mv new/server.key server.key");
  const absl::Time until = absl::Now() + absl::Seconds(4);
  while (absl::Now() < until) {
    EXPECT_EQ(CallBy(old), StatusCode::kUnimplemented);
    absl::SleepFor(absl::Milliseconds(20));
  }
  certificates_.Run("mv new/server.crt server.crt");
  EXPECT_TRUE(Eventually([&] { return CallBy(old) == StatusCode::kUnavailable; }))
      << "the new pair is not taken up";
  EXPECT_EQ(CallBy(certificates_.ForClient()), StatusCode::kUnimplemented);
  EXPECT_EQ(Call(kept).code(), StatusCode::kUnimplemented);
}

TEST_F(RpcSecurity, FilesThatAreGoneLeaveWhatWasThere) {
  SecurityFiles files = certificates_.ForClient();
  files.token = certificates_.Path("mine");
  certificates_.Run("cp token mine; rm token server.key server.crt");
  absl::SleepFor(absl::Milliseconds(2500));
  EXPECT_EQ(CallBy(files), StatusCode::kUnimplemented);
}

TEST_F(RpcSecurity, ATokenTakesTheOthersPlaceInThreeSteps) {
  SecurityFiles files = certificates_.ForClient();
  files.token = certificates_.Path("mine");
  certificates_.Run("openssl rand -hex 32 > mine");
  Client client(files);
  const auto channel = client.Connect(server_->address());
  EXPECT_EQ(Call(channel).code(), StatusCode::kUnauthenticated);
  certificates_.Run("cat mine >> token");
  EXPECT_TRUE(Eventually([&] { return Call(channel).code() == StatusCode::kUnimplemented; }));
  EXPECT_EQ(CallBy(certificates_.ForClient()), StatusCode::kUnimplemented) << "the old one";
  certificates_.Run("cp token both; cp mine token");
  files.token = certificates_.Path("both");
  EXPECT_TRUE(Eventually([&] { return CallBy(files) == StatusCode::kUnauthenticated; }))
      << "the old one, which is sent as the first";
  EXPECT_EQ(Call(channel).code(), StatusCode::kUnimplemented);
}

TEST_F(RpcSecurity, ListensWhereOthersReachIt) {
  EXPECT_TRUE(CheckListen({.listen = "0.0.0.0:0", .security = security_.get()}).ok());
  EXPECT_THAT(CheckListen({.listen = "0.0.0.0:0"}).ToString(),
              AllOf(HasSubstr("--tls-certificate"), HasSubstr("--insecure")));
  const auto of_client = Security::Load(certificates_.ForClient()).value();
  EXPECT_THAT(CheckListen({.listen = "0.0.0.0:0", .security = of_client.get(), .insecure = true})
                  .ToString(),
              AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("needs a certificate")));
}

TEST(RpcSecurityFiles, WhatIsWrongWithAFileIsSaidBeforeItIsUsed) {
  const Certificates certificates("wrong");
  const SecurityFiles good = certificates.ForServer();
  ASSERT_TRUE(Security::Load(good).ok());
  for (const char* command : {
           "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out other.key",
           "openssl pkey -in server.key -aes256 -passout pass:secret -out locked.key",
           "openssl req -new -key server.key -subj /CN=a -out request",
           "openssl x509 -req -in request -CA ca.crt -CAkey ca.key -days 0 -out old.crt",
           "printf '%s\\n' '-----BEGIN CERTIFICATE-----' zzzz '-----END CERTIFICATE-----' > zzzz",
           "cat ca.crt zzzz > faulty.crt",
           "cat old.crt ca.crt > both.crt",
           "echo short > short",
           "echo 'with a space in it, long enough' > spaces",
           ": > empty",
           "truncate -s 2M large",
           "(cat token; echo; echo x) > second",
       }) {
    certificates.Run(absl::StrCat("(", command, ") 2>/dev/null"));
  }
  const auto expect = [&](std::string SecurityFiles::*which, const std::string& file,
                          const std::string& says) {
    SecurityFiles files = good;
    files.*which = file.empty() ? "" : certificates.Path(file);
    const absl::Status status = Security::Load(files).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << file << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  expect(&SecurityFiles::ca, "", "authority");
  expect(&SecurityFiles::ca, "none", "none");
  expect(&SecurityFiles::ca, "token", "token: has no certificate in PEM");
  expect(&SecurityFiles::ca, "faulty.crt", "faulty.crt: certificate 2 is no good PEM");
  expect(&SecurityFiles::ca, "large", "large: has more than 1048576 bytes");
  expect(&SecurityFiles::ca, "old.crt", "old.crt: has a certificate that is valid from ");
  // The authority of before has expired, and nobody has taken it out yet.
  SecurityFiles with_old = good;
  with_old.ca = certificates.Path("both.crt");
  EXPECT_TRUE(Security::Load(with_old).ok());
  expect(&SecurityFiles::certificate, "", "go together; only ");
  expect(&SecurityFiles::certificate, "old.crt", "old.crt: has a certificate that is valid from ");
  expect(&SecurityFiles::key, "other.key",
         "other.key: is not the key of the first certificate of ");
  expect(&SecurityFiles::key, "locked.key", "without a password");
  expect(&SecurityFiles::key, "ca.crt", "has no private key in PEM");
  expect(&SecurityFiles::token, "short", "short:1: a token of 5 characters; expected 16 at least");
  expect(&SecurityFiles::token, "spaces", "spaces:1: a token is letters");
  expect(&SecurityFiles::token, "empty", "empty: has no token");
  expect(&SecurityFiles::token, "large", "large: has more than 1048576 bytes");
  expect(&SecurityFiles::token, "second", "second:3: a token of 1 characters");
}

TEST(RpcSecurityFiles, WhatIsPutInTheirPlaceIsLookedAtWhileAProcessRuns) {
  const Certificates certificates("watch");
  const SecurityFiles files = certificates.ForServer();
  const CertificateFiles paths = {
      .ca = files.ca, .certificate = files.certificate, .key = files.key};
  const auto watch = CertificatesInForce::Open(paths, absl::Milliseconds(10));
  ASSERT_TRUE(watch.ok()) << watch.status();
  const auto copy = [&] {
    return ReadWholeFile(PosixFileSystem(), (*watch)->chain_and_key()).value();
  };
  const auto held = [&] {
    return ReadWholeFile(PosixFileSystem(), files.certificate).value() + "\n" +
           ReadWholeFile(PosixFileSystem(), files.key).value();
  };
  const std::string before = held();
  EXPECT_EQ(copy(), before);
  EXPECT_EQ((*watch)->complaint(), "");
  certificates.Run("cp server.key kept; cp ca.key other; mv other server.key");
  EXPECT_TRUE(Eventually([&] { return !(*watch)->complaint().empty(); }));
  EXPECT_THAT((*watch)->complaint(),
              HasSubstr("server.key: is not the key of the first certificate"));
  EXPECT_EQ(copy(), before);
  certificates.Run("cp kept server.key");
  EXPECT_TRUE(Eventually([&] { return (*watch)->complaint().empty(); }));
  certificates.Make();
  EXPECT_TRUE(Eventually([&] { return copy() == held(); }));
  EXPECT_NE(copy(), before);
  certificates.Run("rm ca.crt");
  EXPECT_TRUE(Eventually([&] { return !(*watch)->complaint().empty(); }));
  EXPECT_THAT(ReadWholeFile(PosixFileSystem(), (*watch)->authorities()).value(),
              HasSubstr("BEGIN CERTIFICATE"));
}

TEST(RpcSecurityFiles, ThatACertificateExpiresSoonIsSaidWhileItIsStillValid) {
  const Certificates certificates("soon");
  const SecurityFiles files = certificates.ForServer();
  const auto watch = CertificatesInForce::Open(
      {.ca = files.ca, .certificate = files.certificate, .key = files.key}, absl::Milliseconds(10));
  ASSERT_TRUE(watch.ok()) << watch.status();
  const auto days = [&] { return absl::ToDoubleHours((*watch)->valid_until() - absl::Now()) / 24; };
  EXPECT_NEAR(days(), 90, 1);
  certificates.Run(
      "(openssl req -new -key server.key -subj /CN=a -out request; openssl x509 -req -in request "
      "-CA ca.crt -CAkey ca.key -days 13 -out new.crt; mv new.crt server.crt) 2>/dev/null");
  EXPECT_TRUE(Eventually([&] { return !(*watch)->complaint().empty(); }));
  EXPECT_THAT((*watch)->complaint(),
              AllOf(HasSubstr("server.crt"), HasSubstr("expires within two weeks")));
  EXPECT_NEAR(days(), 13, 1);
  certificates.Make();
  EXPECT_TRUE(Eventually([&] { return (*watch)->complaint().empty(); }));
  EXPECT_NEAR(days(), 90, 1);
}

// So that a file system that hangs holds up no call.
TEST(RpcSecurityFiles, ACallReadsNoTokenFile) {
  const Certificates certificates("look");
  certificates.Run("echo 0123456789abcdef > mine");
  const auto file = TokenFile::Open(certificates.Path("mine"));
  ASSERT_TRUE(file.ok()) << file.status();
  certificates.Run("echo fedcba9876543210 > mine");
  absl::SleepFor(absl::Milliseconds(1100));  // a call would read it once a second
  EXPECT_EQ((*file)->Sent(), "0123456789abcdef");
  EXPECT_FALSE((*file)->Accepts("fedcba9876543210"));
  (*file)->Look();
  EXPECT_EQ((*file)->Sent(), "fedcba9876543210");
  EXPECT_TRUE((*file)->Accepts("fedcba9876543210"));
  EXPECT_FALSE((*file)->Accepts("0123456789abcdef"));
}

// As of `--token-file <(get-token)`.
TEST(RpcSecurityFiles, ATokenFromAPipeIsReadOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  constexpr absl::string_view kToken = "0123456789abcdef\n";
  ASSERT_EQ(::write(ends[1], kToken.data(), kToken.size()), static_cast<ssize_t>(kToken.size()));
  ::close(ends[1]);
  const auto file = TokenFile::Open(absl::StrCat("/dev/fd/", ends[0]));
  ::close(ends[0]);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Sent(), "0123456789abcdef");
}

}  // namespace
}  // namespace tessera
