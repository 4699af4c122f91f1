#include "master/etcd/etcd_state_log.h"

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/master/etcd_process.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Passes calls on to a real etcd. What it is told to lose gets there, and its answer does not come
// back; what it is told to refuse does not get there.
class Gate final : public etcdserverpb::KV::Service {
 public:
  explicit Gate(const std::shared_ptr<grpc::Channel>& etcd)
      : stub_(etcdserverpb::KV::NewStub(etcd)) {}

  std::atomic<int> lose{0};  // answers to the next so many writes
  std::atomic<bool> refuse{false};
  std::atomic<int> breaks_after{-1};  // so many writes: it is broken for good; negative: never

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    grpc::ClientContext context;
    return refuse ? Refused() : stub_->Range(&context, *request, response);
  }
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* response) override {
    if (refuse) return Refused();
    if (breaks_after == 0) return {grpc::StatusCode::INTERNAL, "the test breaks it"};
    if (breaks_after > 0 && !request->success(0).has_request_range()) --breaks_after;
    grpc::ClientContext context;
    const grpc::Status status = stub_->Txn(&context, *request, response);
    if (lose > 0 && request->success(0).has_request_put()) {
      --lose;
      lost = *request;
      return Refused();
    }
    return status;
  }
  // What was lost arrives once more.
  bool ReplayLost() {
    grpc::ClientContext context;
    etcdserverpb::TxnResponse response;
    EXPECT_TRUE(stub_->Txn(&context, lost, &response).ok());
    return response.succeeded();
  }

  etcdserverpb::TxnRequest lost;

 private:
  static grpc::Status Refused() { return {grpc::StatusCode::UNAVAILABLE, "the test cuts it off"}; }

  const std::unique_ptr<etcdserverpb::KV::Stub> stub_;
};

// The renewals go straight to etcd.
class LeaseGate final : public etcdserverpb::Lease::Service {
 public:
  explicit LeaseGate(const std::shared_ptr<grpc::Channel>& etcd)
      : stub_(etcdserverpb::Lease::NewStub(etcd)) {}
  std::atomic<bool> refuse{false};

  grpc::Status LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest* request,
                          etcdserverpb::LeaseGrantResponse* response) override {
    grpc::ClientContext context;
    return stub_->LeaseGrant(&context, *request, response);
  }
  grpc::Status LeaseRevoke(grpc::ServerContext*, const etcdserverpb::LeaseRevokeRequest* request,
                           etcdserverpb::LeaseRevokeResponse* response) override {
    grpc::ClientContext context;
    return stub_->LeaseRevoke(&context, *request, response);
  }
  grpc::Status LeaseKeepAlive(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse,
                               etcdserverpb::LeaseKeepAliveRequest>* from) override {
    if (refuse) return {grpc::StatusCode::UNAVAILABLE, "the test cuts it off"};
    grpc::ClientContext context;
    const auto to = stub_->LeaseKeepAlive(&context);
    etcdserverpb::LeaseKeepAliveRequest request;
    etcdserverpb::LeaseKeepAliveResponse response;
    while (from->Read(&request)) {
      if (to->Write(request) && to->Read(&response)) from->Write(response);
    }
    to->WritesDone();
    return to->Finish();
  }

 private:
  const std::unique_ptr<etcdserverpb::Lease::Stub> stub_;
};

class EtcdStateLogTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcess::Installed()) GTEST_SKIP() << "no etcd on this machine (etcd-server)";
    etcd_ = std::make_unique<EtcdProcess>();
    if (HasFatalFailure()) return;
    network_ = NewNetworkChannels();
    client_ =
        std::make_unique<EtcdClient>(std::vector<std::string>{etcd_->address()}, network_.get());
  }
  // Stands by for ten seconds.
  std::unique_ptr<Leadership> Lead(EtcdClient* client, absl::Duration ttl = absl::Seconds(10)) {
    Leadership::Options options;
    options.etcd = client;
    options.cluster = "test";
    options.self = absl::StrCat("master ", ++masters_);
    options.ttl = ttl;
    const absl::Time begin = absl::Now();
    auto leadership = Leadership::Campaign(options, [begin](absl::Duration duration) {
      absl::SleepFor(duration);
      return absl::Now() - begin > absl::Seconds(10);
    });
    EXPECT_TRUE(leadership.ok()) << leadership.status();
    return leadership.ok() ? *std::move(leadership) : nullptr;
  }
  std::unique_ptr<StateLog> Open(EtcdClient* client, Leadership* leadership) {
    auto log = OpenEtcdStateLog(client, leadership);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? *std::move(log) : nullptr;
  }
  void Put(const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest txn;
    txn.add_success()->mutable_request_put()->set_key(key);
    txn.mutable_success(0)->mutable_request_put()->set_value(value);
    ASSERT_TRUE(client_->Txn(txn, absl::Seconds(5)).ok());
  }
  etcdserverpb::RangeResponse Read(const std::string& key, bool prefix = false) {
    etcdserverpb::RangeRequest request;
    request.set_key(key);
    if (prefix) request.set_range_end(EndOfPrefix(key));
    const auto response = client_->Range(request, absl::Seconds(5));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : etcdserverpb::RangeResponse();
  }
  // As if the lease of who leads had run out.
  void Depose() {
    const etcdserverpb::RangeResponse leader = Read("/tessera/test/leader");
    ASSERT_EQ(leader.kvs_size(), 1);
    ASSERT_TRUE(client_->LeaseRevoke(leader.kvs(0).lease(), absl::Seconds(5)).ok());
  }

  std::atomic<int> masters_ = 0;
  std::unique_ptr<EtcdProcess> etcd_;
  std::unique_ptr<Channels> network_;
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdStateLogTest, OutlivesItsMaster) {
  auto first = Lead(client_.get());
  ASSERT_TRUE(Open(client_.get(), first.get())->Apply({{"a", "1"}}).ok());
  first.reset();
  const auto second = Lead(client_.get());
  const auto log = Open(client_.get(), second.get());
  EXPECT_EQ(log->Get("a").value(), "1");
  EXPECT_TRUE(log->Apply({{"a", "2"}}).ok());
}

TEST_F(EtcdStateLogTest, OutlivesACrashOfEtcd) {
  const auto leadership = Lead(client_.get());
  const auto log = Open(client_.get(), leadership.get());
  ASSERT_TRUE(log->Apply({{"a", "1"}}).ok());
  etcd_->Kill();
  // Tried until etcd is back.
  std::thread write([&log] { EXPECT_TRUE(log->Apply({{"b", "2"}}).ok()); });
  absl::SleepFor(absl::Milliseconds(500));
  etcd_->Start();
  write.join();
  EXPECT_THAT(log->Scan("").value(), ElementsAre(Pair("a", "1"), Pair("b", "2")));
  EXPECT_TRUE(leadership->Check().ok());
}

TEST_F(EtcdStateLogTest, TakesABatchBeyondEtcdsLimits) {
  const auto leadership = Lead(client_.get());
  const auto log = Open(client_.get(), leadership.get());
  ASSERT_TRUE(log->Apply({{"gone", "x"}, {"key/0", "old"}}).ok());
  std::vector<StateLog::Write> batch;
  for (int i = 0; i < 500; ++i) batch.push_back({absl::StrCat("key/", i), absl::StrCat(i)});
  for (int i = 0; i < 4; ++i)
    batch.push_back({absl::StrCat("large/", i), std::string(1 << 20, 'x')});
  batch.push_back({"gone", std::nullopt});
  ASSERT_TRUE(log->Apply(batch).ok());
  const auto keys = log->Scan("key/");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->size(), 500u);
  EXPECT_EQ(keys->at("key/0"), "0");
  EXPECT_EQ(keys->at("key/499"), "499");
  EXPECT_EQ(log->Get("large/3")->size(), 1u << 20);
  EXPECT_EQ(log->Get("gone").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(log->Scan("")->size(), 504u);
  EXPECT_EQ(Read("/tessera/test/batch", true).kvs_size(), 0);  // nothing is left of the parts
}

TEST_F(EtcdStateLogTest, AValueOfAnyLengthIsReadAsItWasWritten) {
  const auto text = [](char of, size_t bytes) {
    std::string value(bytes, of);
    for (size_t i = 0; i < bytes; i += 1000) value[i] = static_cast<char>('0' + i / 1000 % 10);
    return value;
  };
  constexpr size_t kMiB = 1 << 20;
  const std::vector<std::string> values = {text('a', 5 * kMiB + 7), text('b', 2 * kMiB),
                                           text('c', 9 * kMiB),     text('d', kMiB + 1),
                                           text('e', kMiB),         "",
                                           text('f', 3 * kMiB)};
  auto leadership = Lead(client_.get());
  auto log = Open(client_.get(), leadership.get());
  // Keys of which one begins another.
  ASSERT_TRUE(log->Apply({{"job/1", "one"}, {"job/10", text('x', 2 * kMiB)}}).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(log->Apply({{"job/1", values[i]}, {"other", absl::StrCat(i)}}).ok());
    if (i % 2 == 1) {  // another master
      log.reset();
      leadership.reset();
      leadership = Lead(client_.get());
      log = Open(client_.get(), leadership.get());
    }
    EXPECT_TRUE(log->Get("job/1").value() == values[i]);
    const std::map<std::string, std::string> all = log->Scan("job/").value();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_TRUE(all.at("job/1") == values[i]);
    EXPECT_TRUE(all.at("job/10") == text('x', 2 * kMiB));
  }
  ASSERT_TRUE(log->Apply({{"job/1", std::nullopt}, {"job/10", std::nullopt}}).ok());
  EXPECT_THAT(log->Scan("").value(), ElementsAre(Pair("other", "6")));
  EXPECT_EQ(Read("/tessera/test/state_pieces", true).kvs_size(), 0);
}

TEST_F(EtcdStateLogTest, ABatchThatWasCutShortIsCarriedOutByTheNextMaster) {
  for (int part = 0; part < 2; ++part) {
    etcdserverpb::TxnRequest txn;
    txn.add_success()->mutable_request_put()->set_key(absl::StrCat("/tessera/test/state/", part));
    txn.mutable_success(0)->mutable_request_put()->set_value("new");
    Put(absl::StrCat("/tessera/test/batch/", part), txn.SerializeAsString());
  }
  Put("/tessera/test/state/1", "old");
  auto first = Lead(client_.get());
  // Without its mark it has not happened.
  EXPECT_THAT(Open(client_.get(), first.get())->Scan("").value(), ElementsAre(Pair("1", "old")));
  first.reset();
  Put("/tessera/test/batch_parts", "2");
  const auto second = Lead(client_.get());
  EXPECT_THAT(Open(client_.get(), second.get())->Scan("").value(),
              ElementsAre(Pair("0", "new"), Pair("1", "new")));
  EXPECT_EQ(Read("/tessera/test/batch", true).kvs_size(), 0);
}

TEST_F(EtcdStateLogTest, ADeposedMasterWritesAndReadsNothing) {
  const auto first = Lead(client_.get());
  const auto stale = Open(client_.get(), first.get());
  ASSERT_TRUE(stale->Apply({{"a", "1"}}).ok());
  Depose();
  const auto second = Lead(client_.get());
  const auto log = Open(client_.get(), second.get());
  const absl::Status status = stale->Apply({{"a", "stale"}, {"b", "stale"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("master 2 leads"));
  EXPECT_EQ(stale->Get("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(first->Check().ok());
  EXPECT_EQ(first->Remaining(), absl::ZeroDuration());
  EXPECT_THAT(log->Scan("").value(), ElementsAre(Pair("a", "1")));
  EXPECT_TRUE(second->Check().ok());
}

TEST_F(EtcdStateLogTest, ADeposedMasterWritesNothingEvenWhereNobodyLeads) {
  const auto first = Lead(client_.get());
  const auto stale = Open(client_.get(), first.get());
  Depose();
  EXPECT_EQ(stale->Apply({{"a", "stale"}}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read("/tessera/test/state/", true).kvs_size(), 0);
}

// A master whose writes go through a gate.
class EtcdStateLogBehindAGate : public EtcdStateLogTest {
 protected:
  void SetUp() override {
    EtcdStateLogTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    kv_ = std::make_unique<Gate>(network_->Connect(etcd_->address()));
    lease_ = std::make_unique<LeaseGate>(network_->Connect(etcd_->address()));
    ServerOptions options;
    options.listen = "etcd";
    options.in_process = &channels_;
    auto server = RpcServer::Start(options, {kv_.get(), lease_.get()});
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
    gated_ = std::make_unique<EtcdClient>(std::vector<std::string>{"etcd"}, &channels_);
  }

  InProcessChannels channels_;
  std::unique_ptr<Gate> kv_;
  std::unique_ptr<LeaseGate> lease_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<EtcdClient> gated_;
};

// Whichever of its writes is the last one of its master.
TEST_F(EtcdStateLogBehindAGate, AValueInPiecesIsWhollyTheOldOrTheNew) {
  const std::string old_value(3 << 20, 'o'), new_value((2 << 20) + 5, 'n');
  size_t olds = 0, news = 0;
  for (int writes = 0; writes < 10; ++writes) {
    SCOPED_TRACE(writes);
    auto leadership = Lead(gated_.get());
    auto log = Open(gated_.get(), leadership.get());
    ASSERT_TRUE(log->Apply({{"job/1", old_value}}).ok());
    kv_->breaks_after = writes;
    log->Apply({{"job/1", new_value}}).IgnoreError();
    kv_->breaks_after = -1;
    log.reset();
    leadership.reset();
    leadership = Lead(client_.get());
    const std::string found = Open(client_.get(), leadership.get())->Get("job/1").value();
    olds += found == old_value;
    news += found == new_value;
    EXPECT_TRUE(found == old_value || found == new_value) << found.size();
  }
  EXPECT_GE(olds, 4u) << "three parts, and the mark";
  EXPECT_GE(news, 4u);
}

TEST_F(EtcdStateLogBehindAGate, AWriteWhoseAnswerIsLostIsDoneOnce) {
  const auto leadership = Lead(gated_.get());
  const auto log = Open(gated_.get(), leadership.get());
  ASSERT_TRUE(log->Apply({{"a", "0"}}).ok());
  kv_->lose = 2;
  EXPECT_TRUE(log->Apply({{"a", "1"}}).ok());
  const etcdserverpb::RangeResponse found = Read("/tessera/test/state/a");
  EXPECT_EQ(found.kvs(0).value(), "1");
  EXPECT_EQ(found.kvs(0).version(), 2);  // of its writes
}

TEST_F(EtcdStateLogBehindAGate, AWriteThatArrivesLateIsRefused) {
  const auto leadership = Lead(gated_.get());
  const auto log = Open(gated_.get(), leadership.get());
  kv_->lose = 1;
  ASSERT_TRUE(log->Apply({{"a", "old"}}).ok());
  ASSERT_TRUE(log->Apply({{"a", "new"}}).ok());
  EXPECT_FALSE(kv_->ReplayLost());
  EXPECT_EQ(log->Get("a").value(), "new");
}

TEST_F(EtcdStateLogBehindAGate, AfterAFailureItFindsOutWhatIsDurable) {
  const auto leadership = Lead(gated_.get(), absl::Seconds(30));
  const auto log = Open(gated_.get(), leadership.get());
  ASSERT_TRUE(log->Apply({{"a", "1"}}).ok());
  kv_->lose = 1000;
  EXPECT_EQ(log->Apply({{"a", "2"}}).code(), absl::StatusCode::kUnavailable);
  kv_->lose = 0;
  EXPECT_EQ(log->Get("a").value(), "2");
  EXPECT_TRUE(log->Apply({{"a", "2"}, {"b", "3"}}).ok());
  EXPECT_THAT(log->Scan("").value(), ElementsAre(Pair("a", "2"), Pair("b", "3")));
}

TEST_F(EtcdStateLogBehindAGate, WhoIsCutOffKnowsItBeforeAnotherLeads) {
  absl::Notification lost;
  Leadership::Options options;
  options.etcd = gated_.get();
  options.cluster = "test";
  options.self = "cut off";
  options.ttl = absl::Seconds(2);
  options.on_lost = [&lost] { lost.Notify(); };
  const auto first = Leadership::Campaign(options, [](absl::Duration duration) {
    absl::SleepFor(duration);
    return false;
  });
  ASSERT_TRUE(first.ok());
  const auto stale = Open(gated_.get(), first->get());
  kv_->refuse = lease_->refuse = true;
  const absl::Duration begin = SystemClock().Monotonic();
  const absl::Duration remaining = (*first)->Remaining();
  const auto second = Lead(client_.get(), absl::Seconds(2));
  EXPECT_FALSE((*first)->Check().ok());
  EXPECT_GT(SystemClock().Monotonic() - begin, remaining);
  lost.WaitForNotification();
  kv_->refuse = lease_->refuse = false;
  EXPECT_EQ(stale->Apply({{"a", "stale"}}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read("/tessera/test/state/", true).kvs_size(), 0);
}

using LeadershipTest = EtcdStateLogTest;

TEST_F(LeadershipTest, OneOfTwoLeadsAndTheOtherFollowsWhenItResigns) {
  auto first = Lead(client_.get(), absl::Seconds(60));
  std::atomic<int> looks{0};
  absl::Notification leads;
  std::thread standby([&] {
    Leadership::Options options;
    options.etcd = client_.get();
    options.cluster = "test";
    options.self = "standby";
    const auto second = Leadership::Campaign(options, [&looks](absl::Duration duration) {
      absl::SleepFor(duration);
      return ++looks > 100;
    });
    EXPECT_TRUE(second.ok());
    leads.Notify();
  });
  while (looks < 3) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(leads.HasBeenNotified());
  EXPECT_TRUE(first->Check().ok());
  first.reset();
  EXPECT_TRUE(leads.WaitForNotificationWithTimeout(absl::Seconds(5)));
  standby.join();
}

TEST_F(LeadershipTest, OneOfManyLeadsAtATime) {
  std::atomic<int> leading{0};
  std::atomic<int> terms{0};
  std::vector<std::thread> masters;
  for (int i = 0; i < 4; ++i) {
    masters.emplace_back([&] {
      const auto leadership = Lead(client_.get());
      ASSERT_NE(leadership, nullptr);
      EXPECT_EQ(++leading, 1);
      absl::SleepFor(absl::Milliseconds(20));
      --leading;
      ++terms;
    });
  }
  for (std::thread& master : masters) master.join();
  EXPECT_EQ(terms, 4);
}

TEST_F(LeadershipTest, OutlastsAPauseOfEtcdThatIsShorterThanItsLease) {
  const auto leadership = Lead(client_.get(), absl::Seconds(6));
  etcd_->Pause();
  absl::SleepFor(absl::Seconds(2));
  etcd_->GoOn();
  const absl::Time begin = absl::Now();
  while (leadership->Remaining() < absl::Seconds(5) && absl::Now() - begin < absl::Seconds(10)) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_GE(leadership->Remaining(), absl::Seconds(4));  // renewed
}

TEST_F(LeadershipTest, EndsWithinItsLeaseWhenEtcdHangs) {
  const auto leadership = Lead(client_.get(), absl::Seconds(2));
  etcd_->Pause();
  const absl::Duration begin = SystemClock().Monotonic();
  absl::Duration led;  // when it was last asked and still did
  while (true) {
    const absl::Duration asked = SystemClock().Monotonic() - begin;
    if (!leadership->Check().ok()) break;
    led = asked;
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LT(led, absl::Seconds(2));
  etcd_->GoOn();
}

TEST_F(LeadershipTest, WhoseKeyIsRemovedByHandIsDeposed) {
  const auto leadership = Lead(client_.get(), absl::Seconds(2));
  etcdserverpb::TxnRequest txn;
  txn.add_success()->mutable_request_delete_range()->set_key("/tessera/test/leader");
  ASSERT_TRUE(client_->Txn(txn, absl::Seconds(5)).ok());
  const absl::Time begin = absl::Now();
  while (leadership->Check().ok() && absl::Now() - begin < absl::Seconds(10)) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_THAT(std::string(leadership->Check().message()), HasSubstr("its key is gone"));
}

TEST(LeadershipOptions, TheClustersNameIsChecked) {
  EXPECT_TRUE(CheckClusterName("clicks-1.eu_west").ok());
  EXPECT_EQ(CheckClusterName("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckClusterName("a/b").code(), absl::StatusCode::kInvalidArgument);
}

TEST(EtcdClientTest, GoesToTheNextMemberAfterOneThatDoesNotAnswer) {
  if (!EtcdProcess::Installed()) GTEST_SKIP() << "no etcd on this machine (etcd-server)";
  const EtcdProcess etcd;
  const auto channels = NewNetworkChannels();
  EtcdClient client({"127.0.0.1:1", etcd.address()}, channels.get());
  etcdserverpb::RangeRequest request;
  request.set_key("a");
  const absl::Status status = client.Range(request, absl::Seconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("etcd at 127.0.0.1:1: read: "));
  EXPECT_TRUE(client.Range(request, absl::Seconds(5)).ok());
}

TEST(EtcdClientTest, SpeaksTlsAndShowsItsCertificate) {
  if (!EtcdProcess::Installed()) GTEST_SKIP() << "no etcd on this machine (etcd-server)";
  const Certificates certificates("etcd");
  const EtcdProcess etcd(&certificates);
  const auto get = [&](SecurityFiles files) {
    const auto security = Security::Load(files).value();
    const auto channels = NewNetworkChannels(security.get());
    EtcdClient client({etcd.address()}, channels.get());
    etcdserverpb::RangeRequest request;
    request.set_key("a");
    return client.Range(request, absl::Seconds(5)).status();
  };
  SecurityFiles files = EtcdProcess::SecurityOf(certificates);
  EXPECT_TRUE(get(files).ok());
  files.certificate = files.key = "";
  EXPECT_EQ(get(files).code(), absl::StatusCode::kUnavailable) << "it asks for a certificate";
}

TEST(EtcdClientTest, TheEndOfAPrefixIsTheNextKeyWithoutIt) {
  EXPECT_EQ(EndOfPrefix("a/"), "a0");
  EXPECT_EQ(EndOfPrefix("a\xff\xff"), "b");
}

}  // namespace
}  // namespace tessera::master
