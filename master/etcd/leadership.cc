#include "master/etcd/leadership.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera::master {
namespace {

// The part of the lease that its holder relies on; the rest allows for clocks of other speeds.
constexpr double kLeaseShare = 0.9;
constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
constexpr absl::Duration kSayEvery = absl::Seconds(30);
constexpr absl::Duration kCallLimit = absl::Seconds(3);
constexpr absl::Duration kRenewAtLeastEvery = absl::Seconds(3);
constexpr absl::Duration kRetryEvery = absl::Milliseconds(100);
constexpr absl::Duration kResignLimit = absl::Seconds(1);

struct Leader {
  std::string name;  // empty: nobody
  int64_t lease = 0;
  int64_t create_revision = 0;
};

absl::StatusOr<Leader> ReadLeader(EtcdClient& etcd, const std::string& key, absl::Duration limit) {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  TESSERA_ASSIGN_OR_RETURN(const auto response, etcd.Range(request, limit));
  if (response.kvs_size() == 0) return Leader();
  const etcdserverpb::KeyValue& found = response.kvs(0);
  return Leader{found.value(), found.lease(), found.create_revision()};
}

// Takes the key if nobody has it. Returns its create_revision; 0: another process was faster.
absl::StatusOr<int64_t> TakeKey(EtcdClient& etcd, const std::string& key, const std::string& self,
                                int64_t lease) {
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare* const free = request.add_compare();
  free->set_key(key);
  free->set_target(etcdserverpb::Compare::CREATE);
  free->set_create_revision(0);
  etcdserverpb::PutRequest* const put = request.add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(self);
  put->set_lease(lease);
  const absl::StatusOr<etcdserverpb::TxnResponse> response = etcd.Txn(request, kCallLimit);
  if (response.ok()) return response->succeeded() ? response->header().revision() : 0;
  // The write may have been done and its answer lost.
  TESSERA_ASSIGN_OR_RETURN(const Leader leader, ReadLeader(etcd, key, kCallLimit));
  if (leader.lease == lease) return leader.create_revision;
  return response.status();
}

// Logs what a standby waits for: at once if that has changed, else every kSayEvery.
class Waiting {
 public:
  explicit Waiting(const Clock* clock) : clock_(clock) {}

  void Say(absl::string_view whom, absl::string_view text) {
    const absl::Duration now = clock_->Monotonic();
    if (whom == whom_ && now - said_at_ < kSayEvery) return;
    if (whom != whom_) since_ = now;
    whom_ = std::string(whom);
    said_at_ = now;
    SPDLOG_INFO("{} ({} s so far)", std::string(text), absl::ToInt64Seconds(now - since_));
  }

 private:
  const Clock* const clock_;
  std::string whom_;
  absl::Duration said_at_;
  absl::Duration since_;
};

std::string PrefixOf(const std::string& cluster) { return absl::StrCat("/tessera/", cluster, "/"); }

}  // namespace

absl::Status CheckClusterName(absl::string_view name) {
  const bool valid = !name.empty() && name.size() <= 100 &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) || c == '.' || c == '_' || c == '-';
                     });
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "name of cluster \"", name, "\": expected 1 to 100 letters, digits, '.', '_' and '-'"));
}

absl::StatusOr<std::unique_ptr<Leadership>> Leadership::Campaign(
    const Options& options, const std::function<bool(absl::Duration)>& wait) {
  TESSERA_RETURN_IF_ERROR(CheckClusterName(options.cluster));
  EtcdClient& etcd = *options.etcd;
  const std::string key = absl::StrCat(PrefixOf(options.cluster), "leader");
  Waiting waiting(options.clock);
  absl::Status trouble;
  while (!wait(trouble.ok() ? absl::ZeroDuration() : kLookEvery)) {
    const absl::StatusOr<Leader> leader = ReadLeader(etcd, key, kCallLimit);
    trouble = leader.status();
    if (leader.ok() && !leader->name.empty()) {
      trouble = absl::AlreadyExistsError(
          absl::StrCat("standing by: ", leader->name, " leads cluster ", options.cluster));
    }
    if (trouble.ok()) {
      const absl::Duration begin = options.clock->Monotonic();
      const auto lease = etcd.LeaseGrant(options.ttl, kCallLimit);
      trouble = lease.status();
      if (lease.ok()) {
        const absl::StatusOr<int64_t> taken = TakeKey(etcd, key, options.self, lease->id());
        if (taken.ok() && *taken != 0) {
          const absl::Duration ttl = absl::Seconds(lease->ttl());
          SPDLOG_INFO("leads cluster {} by etcd at {}", options.cluster, etcd.address());
          return std::unique_ptr<Leadership>(
              new Leadership(options, lease->id(), ttl, *taken, begin + ttl * kLeaseShare));
        }
        etcd.LeaseRevoke(lease->id(), kResignLimit).IgnoreError();
        trouble = taken.ok() ? absl::AlreadyExistsError("standing by: another was faster")
                             : taken.status();
      }
    }
    if (absl::IsFailedPrecondition(trouble) || absl::IsInvalidArgument(trouble)) return trouble;
    if (absl::IsAlreadyExists(trouble)) {
      waiting.Say(trouble.message(), trouble.message());
    } else {
      waiting.Say("etcd", absl::StrCat("waiting for etcd: ", trouble.message()));
    }
  }
  return absl::CancelledError("stopped while standing by");
}

Leadership::Leadership(const Options& options, int64_t lease, absl::Duration ttl,
                       int64_t create_revision, absl::Duration until)
    : options_(options),
      prefix_(PrefixOf(options.cluster)),
      key_(absl::StrCat(prefix_, "leader")),
      lease_(lease),
      ttl_(ttl),
      create_revision_(create_revision),
      until_(until) {
  thread_ = std::thread([this] { RenewForever(); });
}

Leadership::~Leadership() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
  if (Check().ok()) options_.etcd->LeaseRevoke(lease_, kResignLimit).IgnoreError();
}

absl::Duration Leadership::Remaining() {
  absl::MutexLock lock(&mu_);
  if (!lost_.ok()) return absl::ZeroDuration();
  return std::max(until_ - options_.clock->Monotonic(), absl::ZeroDuration());
}

absl::Status Leadership::Check() {
  absl::MutexLock lock(&mu_);
  if (!lost_.ok()) return lost_;
  if (options_.clock->Monotonic() < until_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("this master leads cluster ", options_.cluster,
                                             " no more: its lease was not renewed in time"));
}

void Leadership::Lose(absl::string_view why) {
  {
    absl::MutexLock lock(&mu_);
    if (!lost_.ok()) return;
    lost_ = absl::UnavailableError(
        absl::StrCat("this master leads cluster ", options_.cluster, " no more: ", why));
    SPDLOG_ERROR("{}", std::string(lost_.message()));
  }
  if (options_.on_lost) options_.on_lost();
}

absl::Status Leadership::Renew(absl::Duration limit) {
  TESSERA_RETURN_IF_ERROR(options_.etcd->LeaseKeepAlive(lease_, limit));
  // A live lease does not help if somebody has removed the key.
  TESSERA_ASSIGN_OR_RETURN(const Leader leader, ReadLeader(*options_.etcd, key_, limit));
  if (leader.create_revision == create_revision_) return absl::OkStatus();
  return absl::NotFoundError(leader.name.empty() ? "its key is gone"
                                                 : absl::StrCat(leader.name, " leads"));
}

void Leadership::RenewForever() {
  const absl::Duration every = std::min(ttl_ / 5, kRenewAtLeastEvery);
  absl::Duration pause = every;
  absl::Status trouble;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const absl::Duration left = until_ - options_.clock->Monotonic();
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), std::min(pause, left))) return;
      if (!lost_.ok()) return;
    }
    const absl::Duration begin = options_.clock->Monotonic();
    const absl::Duration left = Remaining();
    if (left <= absl::ZeroDuration()) {
      return Lose(absl::StrCat("its lease was not renewed in time", trouble.ok() ? "" : ": ",
                               trouble.message()));
    }
    trouble = Renew(std::min(left, every));
    if (absl::IsNotFound(trouble)) return Lose(trouble.message());
    pause = trouble.ok() ? every : kRetryEvery;
    if (!trouble.ok()) {
      SPDLOG_WARN("lease not renewed, {} left: {}", absl::FormatDuration(Remaining()),
                  std::string(trouble.message()));
      continue;
    }
    absl::MutexLock lock(&mu_);
    until_ = begin + ttl_ * kLeaseShare;
  }
}

}  // namespace tessera::master
