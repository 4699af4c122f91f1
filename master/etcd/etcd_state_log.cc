#include "master/etcd/etcd_state_log.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/failpoint.h"
#include "common/status_macros.h"

namespace tessera::master {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::KeyValue;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// etcd takes 128 operations and 1.5 MiB a request, unless its operator says otherwise.
constexpr int kMaxOperations = 100;
constexpr size_t kMaxPartBytes = 1 << 20;
// A value lies in pieces of so many bytes, the first under its own key.
constexpr size_t kPieceBytes = 1 << 20;
// So that an answer stays below kMaxMessageBytes.
constexpr int64_t kScanPage = 32;
static_assert(kScanPage * (kPieceBytes + 4096) < kMaxMessageBytes);
// The limits of a read or write with all its tries, and of one try; never more than the lease has
// left.
constexpr absl::Duration kLimit = absl::Seconds(5);
constexpr absl::Duration kTryLimit = absl::Seconds(2);
constexpr absl::Duration kWriteAgainEvery = absl::Milliseconds(50);

void CompareCreated(TxnRequest& txn, const std::string& key, int64_t revision) {
  Compare* const compare = txn.add_compare();
  compare->set_key(key);
  compare->set_target(Compare::CREATE);
  compare->set_create_revision(revision);
}

void CompareModified(TxnRequest& txn, const std::string& key, int64_t revision) {
  Compare* const compare = txn.add_compare();
  compare->set_key(key);
  compare->set_target(Compare::MOD);
  compare->set_mod_revision(revision);
}

void Put(TxnRequest& txn, std::string key, std::string value) {
  etcdserverpb::PutRequest* const put = txn.add_success()->mutable_request_put();
  put->set_key(std::move(key));
  put->set_value(std::move(value));
}

// Deletes `key`, or, with `end`, all keys of [key, end).
void Delete(TxnRequest& txn, std::string key, std::string end = "") {
  etcdserverpb::DeleteRangeRequest* const gone = txn.add_success()->mutable_request_delete_range();
  gone->set_key(std::move(key));
  gone->set_range_end(std::move(end));
}

// The key and value of a response to a read of one key; without revisions: there is no such key.
KeyValue Found(const RangeResponse& response) {
  return response.kvs_size() == 0 ? KeyValue() : response.kvs(0);
}

// Every write compares and renews the key `applied`. A try that its caller has given up may still
// be on its way; since it names the revision of `applied` that it follows, it cannot be done late,
// over a newer write.
class EtcdStateLog final : public StateLog {
 public:
  EtcdStateLog(EtcdClient* etcd, Leadership* leadership)
      : etcd_(etcd),
        leadership_(leadership),
        states_(absl::StrCat(leadership->prefix(), "state/")),
        pieces_(absl::StrCat(leadership->prefix(), "state_pieces/")),
        applied_(absl::StrCat(leadership->prefix(), "applied")),
        parts_(absl::StrCat(leadership->prefix(), "batch/")),
        mark_(absl::StrCat(leadership->prefix(), "batch_parts")) {}

  absl::Status Apply(const std::vector<Write>& batch) override ABSL_LOCKS_EXCLUDED(mu_) {
    TESSERA_RETURN_IF_ERROR(Failpoint("master.state_log.apply"));
    absl::MutexLock lock(&mu_);
    std::vector<TxnRequest> parts = Cut(batch);
    if (parts.empty()) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(Settle());
    if (parts.size() == 1) {
      TESSERA_RETURN_IF_ERROR(Commit(std::move(parts[0])));
    } else {
      TESSERA_RETURN_IF_ERROR(LayDown(parts));
      // The batch is durable. If applying it fails here, the next read or write applies the rest.
      Settle().IgnoreError();
    }
    PassFailpoint("master.state_log.applied");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(Settle());
    RangeRequest request;
    request.set_key(absl::StrCat(states_, key));
    TESSERA_ASSIGN_OR_RETURN(RangeResponse response, Read(request));
    if (response.kvs_size() == 0) {
      return absl::NotFoundError(absl::StrCat("etcd at ", etcd_->address(), ": no key ", key));
    }
    std::string value = std::move(*response.mutable_kvs(0)->mutable_value());
    if (!in_pieces_.contains(key)) return value;
    TESSERA_RETURN_IF_ERROR(
        ReadAll(PiecesOf(key), [&value](const KeyValue& piece) { value.append(piece.value()); }));
    return value;
  }

  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(Settle());
    std::map<std::string, std::string> found;
    TESSERA_RETURN_IF_ERROR(ReadAll(absl::StrCat(states_, prefix), [&](const KeyValue& kv) {
      found.emplace(kv.key().substr(states_.size()), kv.value());
    }));
    TESSERA_RETURN_IF_ERROR(ReadAll(absl::StrCat(pieces_, prefix), [&](const KeyValue& piece) {
      found[KeyOfPiece(piece.key())].append(piece.value());
    }));
    return found;
  }

  absl::Status Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(Settle());
    return ReadAll(pieces_, [this](const KeyValue& piece) {
      mu_.AssertHeld();
      in_pieces_.insert(KeyOfPiece(piece.key()));
    });
  }

 private:
  // The prefix of the keys of a value's pieces after the first, in order. No key contains a zero
  // byte.
  std::string PiecesOf(absl::string_view key) const {
    return absl::StrCat(pieces_, key, absl::string_view("\0", 1));
  }
  std::string PieceKey(absl::string_view key, size_t piece) const {
    return absl::StrCat(PiecesOf(key), absl::Dec(piece, absl::kZeroPad8));
  }
  std::string KeyOfPiece(const std::string& piece) const {
    return piece.substr(pieces_.size(), piece.find('\0', pieces_.size()) - pieces_.size());
  }

  // Visits all keys that begin with `prefix`, in order, some at a time. The lock and the leadership
  // keep others from writing meanwhile.
  absl::Status ReadAll(const std::string& prefix, absl::FunctionRef<void(const KeyValue&)> visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(EndOfPrefix(prefix));
    request.set_limit(kScanPage);
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const RangeResponse response, Read(request));
      for (const KeyValue& kv : response.kvs()) visit(kv);
      if (!response.more() || response.kvs_size() == 0) return absl::OkStatus();
      // The key that follows the last one.
      request.set_key(
          absl::StrCat(response.kvs(response.kvs_size() - 1).key(), absl::string_view("\0", 1)));
    }
  }

  // Finds out what is durable, and applies the rest of a batch that was cut short.
  absl::Status Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (settled_) return absl::OkStatus();
    RangeRequest request;
    request.set_key(applied_);
    TESSERA_ASSIGN_OR_RETURN(const RangeResponse applied, Read(request));
    applied_revision_ = Found(applied).mod_revision();
    request.set_key(mark_);
    TESSERA_ASSIGN_OR_RETURN(const RangeResponse mark, Read(request));
    const absl::Status status =
        mark.kvs_size() > 0 ? CarryOut(mark.kvs(0).value()) : absl::OkStatus();
    settled_ = status.ok();
    return status;
  }

  // The batch as transactions that etcd takes; each key once, with its last value.
  std::vector<TxnRequest> Cut(const std::vector<Write>& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::map<std::string, const std::optional<std::string>*> last;
    for (const Write& write : batch) last[write.key] = &write.value;
    std::vector<TxnRequest> parts;
    size_t bytes = 0;
    const auto part_for = [&](size_t size) -> TxnRequest& {
      if (parts.empty() || parts.back().success_size() >= kMaxOperations ||
          bytes + size > kMaxPartBytes) {
        parts.emplace_back();
        bytes = 0;
      }
      bytes += size;
      return parts.back();
    };
    for (const auto& [key, value] : last) {
      const absl::string_view text = value->has_value() ? **value : absl::string_view();
      size_t pieces = value->has_value() ? 1 : 0;
      if (value->has_value()) {
        Put(part_for(key.size() + std::min(text.size(), kPieceBytes)), absl::StrCat(states_, key),
            std::string(text.substr(0, kPieceBytes)));
      } else {
        Delete(part_for(key.size()), absl::StrCat(states_, key));
      }
      for (; pieces * kPieceBytes < text.size(); ++pieces) {
        const absl::string_view piece = text.substr(pieces * kPieceBytes, kPieceBytes);
        Put(part_for(key.size() + piece.size()), PieceKey(key, pieces), std::string(piece));
      }
      // Pieces that a longer value has left behind.
      if (in_pieces_.contains(key)) {
        Delete(part_for(key.size()), PieceKey(key, pieces), EndOfPrefix(PiecesOf(key)));
      }
      // Set before the write is done: to look for pieces in vain does no harm.
      if (pieces > 1) in_pieces_.insert(key);
    }
    return parts;
  }

  std::string PartKey(uint64_t part) const { return absl::StrCat(parts_, part); }

  // Makes a batch of several parts durable: stores the parts, then the mark that makes them count.
  absl::Status LayDown(const std::vector<TxnRequest>& parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t i = 0; i < parts.size(); ++i) {
      TxnRequest txn;
      Put(txn, PartKey(i), parts[i].SerializeAsString());
      TESSERA_RETURN_IF_ERROR(Commit(std::move(txn)));
    }
    TxnRequest txn;
    Put(txn, mark_, absl::StrCat(parts.size()));
    TESSERA_RETURN_IF_ERROR(Commit(std::move(txn)));
    settled_ = false;
    return absl::OkStatus();
  }

  // Applies a stored batch. May be repeated, since each part says what its keys are to be.
  absl::Status CarryOut(const std::string& mark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    uint64_t parts = 0;
    if (!absl::SimpleAtoi(mark, &parts)) {
      return absl::DataLossError(absl::StrCat("etcd at ", etcd_->address(), ": ", mark_, " is \"",
                                              mark, "\", expected a number"));
    }
    for (uint64_t i = 0; i < parts; ++i) {
      RangeRequest request;
      request.set_key(PartKey(i));
      TESSERA_ASSIGN_OR_RETURN(const RangeResponse response, Read(request));
      TxnRequest txn;
      if (response.kvs_size() == 0 || !txn.ParseFromString(response.kvs(0).value())) {
        return absl::DataLossError(absl::StrCat("etcd at ", etcd_->address(), ": ", request.key(),
                                                " is missing or damaged, one of ", parts,
                                                " parts of a write"));
      }
      TESSERA_RETURN_IF_ERROR(Commit(std::move(txn)));
    }
    TxnRequest txn;
    Delete(txn, mark_);
    Delete(txn, parts_, EndOfPrefix(parts_));
    return Commit(std::move(txn));
  }

  // Reads, if this master still leads.
  absl::StatusOr<RangeResponse> Read(const RangeRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    TxnRequest txn;
    CompareCreated(txn, leadership_->key(), leadership_->create_revision());
    *txn.add_success()->mutable_request_range() = request;
    txn.add_failure()->mutable_request_range()->set_key(leadership_->key());
    TESSERA_ASSIGN_OR_RETURN(TxnResponse response, Send(txn));
    if (!response.succeeded()) return Deposed(Found(response.responses(0).response_range()));
    return std::move(*response.mutable_responses(0)->mutable_response_range());
  }

  // Does the writes of `txn` if this master leads and has seen all earlier writes. After a failure
  // they may have been done or not (settled_ is false).
  absl::Status Commit(TxnRequest txn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string name = absl::StrCat(leadership_->create_revision(), "-", ++writes_);
    CompareCreated(txn, leadership_->key(), leadership_->create_revision());
    CompareModified(txn, applied_, applied_revision_);
    Put(txn, applied_, name);
    txn.add_failure()->mutable_request_range()->set_key(leadership_->key());
    txn.add_failure()->mutable_request_range()->set_key(applied_);
    settled_ = false;
    TESSERA_ASSIGN_OR_RETURN(const TxnResponse response, Send(txn));
    int64_t revision = response.header().revision();
    if (!response.succeeded()) {
      const KeyValue leader = Found(response.responses(0).response_range());
      const KeyValue applied = Found(response.responses(1).response_range());
      if (leader.create_revision() != leadership_->create_revision()) return Deposed(leader);
      // Else an earlier try got through, and its answer was lost.
      if (applied.value() != name) {
        return absl::UnavailableError(
            absl::StrCat("etcd at ", etcd_->address(), ": ", applied_, " was written at revision ",
                         applied.mod_revision(), ", expected ", applied_revision_));
      }
      revision = applied.mod_revision();
    }
    applied_revision_ = revision;
    settled_ = true;
    return absl::OkStatus();
  }

  // Sends `txn`, again while etcd does not answer, as long as this master is sure to lead.
  absl::StatusOr<TxnResponse> Send(const TxnRequest& txn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Duration until = SystemClock().Monotonic() + kLimit;
    while (true) {
      TESSERA_RETURN_IF_ERROR(leadership_->Check());
      const absl::Duration left =
          std::min(until - SystemClock().Monotonic(), leadership_->Remaining());
      absl::StatusOr<TxnResponse> response = etcd_->Txn(txn, std::min(left, kTryLimit));
      if (!absl::IsUnavailable(response.status()) || left <= kWriteAgainEvery) return response;
      absl::SleepFor(kWriteAgainEvery);
    }
  }

  absl::Status Deposed(const KeyValue& leader) {
    leadership_->Lose(leader.value().empty() ? "nobody holds its key"
                                             : absl::StrCat(leader.value(), " leads"));
    return leadership_->Check();
  }

  EtcdClient* const etcd_;
  Leadership* const leadership_;
  const std::string states_;   // prefix of the state's keys
  const std::string pieces_;   // prefix of the values' pieces after the first
  const std::string applied_;  // renewed by every write
  const std::string parts_;    // prefix of the stored parts of a batch
  const std::string mark_;     // the number of the parts, once they are all stored

  absl::Mutex mu_;                                     // orders the transactions
  bool settled_ ABSL_GUARDED_BY(mu_) = false;          // false: call Settle first
  int64_t applied_revision_ ABSL_GUARDED_BY(mu_) = 0;  // of applied_; 0: there is none
  uint64_t writes_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string> in_pieces_ ABSL_GUARDED_BY(mu_);  // keys whose values may have several
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateLog>> OpenEtcdStateLog(EtcdClient* etcd,
                                                           Leadership* leadership) {
  auto log = std::make_unique<EtcdStateLog>(etcd, leadership);
  TESSERA_RETURN_IF_ERROR(log->Open());
  return log;
}

}  // namespace tessera::master
