#include "common/cluster/node.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/cluster/master_survey.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/version.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "tessera/v1/cluster.grpc.pb.h"

namespace tessera {
namespace {

// The operation that a completion belongs to.
enum class Tag : intptr_t { kStart = 1, kRead, kWrite, kWritesDone, kFinish, kStop, kBeat };
void* ToPointer(Tag tag) { return reinterpret_cast<void*>(static_cast<intptr_t>(tag)); }
Tag FromPointer(void* tag) { return static_cast<Tag>(reinterpret_cast<intptr_t>(tag)); }

// A deadline on the monotonic clock, so that a jump of the wall clock does not change a wait.
gpr_timespec After(absl::Duration wait) {
  wait = std::clamp(wait, absl::ZeroDuration(), absl::Hours(1));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(wait), GPR_TIMESPAN));
}

bool IsFatal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status) || absl::IsPermissionDenied(status);
}

class Node final : public ClusterNode {
 public:
  Node(Options options, Callbacks callbacks)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        backoff_(options_.backoff),
        name_taken_limit_(options_.name_taken_limit) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Node() override { Stop(); }

  void Stop() override {
    {
      absl::MutexLock lock(&mu_);
      if (stopped_) return;
      stopped_ = true;
      if (survey_ != nullptr) survey_->Cancel();
    }
    wake_.Set(&queue_, After(absl::ZeroDuration()), ToPointer(Tag::kStop));
    thread_.join();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool AwaitRelease(absl::Duration limit, bool awaits_master) override {
    absl::MutexLock lock(&mu_);
    if (stopped_ || (!joined_ && !awaits_master)) return false;
    if (!std::exchange(leaving_, true)) SetBeat();
    const auto answered = [this, awaits_master]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return released_ || (!joined_ && !awaits_master) || stopped_ || joins_no_more_;
    };
    mu_.AwaitWithTimeout(absl::Condition(&answered), limit);
    return released_;
  }

  void Beat() override {
    absl::MutexLock lock(&mu_);
    SetBeat();
  }

 private:
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::NodeMessage, v1::MasterMessage>> stream;
    v1::MasterMessage in;
    grpc::Status status;
    int pending = 0;  // operations that have not completed
    bool writing = false;
    bool beat_due = false;  // at once, or when the message that is being sent is
    bool welcomed = false;
    bool goodbye = false;
    bool finishing = false;
    std::string why;         // the reason if we gave up, in place of gRPC's "cancelled"
    absl::Duration next;     // time of the next heartbeat, or the time limit of what is awaited
    absl::Duration give_up;  // time limit of the message that is being sent
  };

  void Run() {
    while (!stop_) {
      const absl::Status status = RunSession();
      if (stop_ || !KeepTrying(status)) break;
      Pause(backoff_.Next());
    }
    absl::MutexLock lock(&mu_);
    joins_no_more_ = true;
  }

  // Waits on the queue, so that Stop can end the wait.
  void Pause(absl::Duration wait) {
    void* tag;
    bool ok;
    if (queue_.AsyncNext(&tag, &ok, After(wait)) != grpc::CompletionQueue::GOT_EVENT) return;
    if (FromPointer(tag) == Tag::kStop) stop_ = true;
    if (FromPointer(tag) == Tag::kBeat) BeatCame();
  }

  void SetBeat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // An alarm is not set again before it has come.
    if (stopped_ || !joined_ || std::exchange(beat_set_, true)) return;
    beat_.Set(&queue_, After(absl::ZeroDuration()), ToPointer(Tag::kBeat));
  }
  void BeatCame() {
    absl::MutexLock lock(&mu_);
    beat_set_ = false;
  }

  // Runs one stream, from Hello to its end; never returns OK.
  absl::Status RunSession() {
    Session s;
    auto stub = v1::ClusterService::NewStub(options_.channels->Connect(options_.master_address));
    s.stream = stub->PrepareAsyncJoin(&s.context, &queue_);
    s.next = Now() + options_.welcome_limit;
    s.pending = 1;
    s.stream->StartCall(ToPointer(Tag::kStart));
    while (s.pending > 0) {
      void* tag;
      bool ok;
      const auto got = queue_.AsyncNext(&tag, &ok, After(s.next - Now()));
      if (got == grpc::CompletionQueue::TIMEOUT) {
        OnTime(s);
      } else {
        OnEvent(s, FromPointer(tag), ok);
      }
    }
    SetJoined(false);
    absl::Status status = FromGrpc(s.status);
    if (status.ok()) status = absl::UnavailableError("the master ended the stream");
    if (!s.why.empty()) status = absl::UnavailableError(s.why);
    if (s.welcomed && !stop_) {
      SPDLOG_WARN("lost the master at {}: {}; this process goes on as incarnation {}",
                  options_.master_address, std::string(status.message()),
                  options_.hello.incarnation());
    }
    return status;
  }

  void OnTime(Session& s) {
    if (s.welcomed && s.writing && !s.goodbye && !s.finishing && Now() < s.give_up) {
      // The master or this process is slow, which is not a loss until the lease has run out.
      s.next = std::min(Now() + heartbeat_, s.give_up);
      return;
    }
    if (s.goodbye || s.finishing || !s.welcomed || s.writing) {
      // Something did not happen in time: the goodbye, the end of the stream, the Welcome, or the
      // sending of a heartbeat.
      if (!s.goodbye && !s.finishing) {
        s.why = s.welcomed ? "the master takes no heartbeat"
                           : absl::StrCat("it accepts the connection and does not answer within ",
                                          absl::FormatDuration(options_.welcome_limit));
      }
      s.context.TryCancel();
      s.next = Now() + absl::Seconds(1);
      return;
    }
    v1::NodeMessage message;
    *message.mutable_heartbeat() = callbacks_.heartbeat ? callbacks_.heartbeat() : v1::Heartbeat();
    {
      absl::MutexLock lock(&mu_);
      message.mutable_heartbeat()->set_leaving(leaving_);
    }
    Write(s, message);
    s.next = Now() + heartbeat_;
  }

  void OnEvent(Session& s, Tag tag, bool ok) {
    if (tag == Tag::kStop) {
      stop_ = true;
      s.goodbye = true;
      s.next = Now() + options_.goodbye_limit;
      if (!s.welcomed || s.finishing) {
        s.context.TryCancel();
      } else if (!s.writing) {
        SayGoodbye(s);
      }
      return;
    }
    if (tag == Tag::kBeat) {
      BeatCame();
      s.beat_due = true;
      return BeatIfDue(s);
    }
    s.pending -= 1;
    switch (tag) {
      case Tag::kStart:
        if (!ok || stop_) return Finish(s);
        Write(s, Hello());
        return Read(s);
      case Tag::kRead:
        if (!ok) return Finish(s);
        OnMessage(s);
        return Read(s);
      case Tag::kWrite:
        s.writing = false;
        BeatIfDue(s);
        if (ok && s.goodbye && s.welcomed && !s.finishing) SayGoodbye(s);
        return;
      default:
        return;
    }
  }

  void BeatIfDue(Session& s) {
    if (s.writing || !std::exchange(s.beat_due, false)) return;
    if (s.welcomed && !s.goodbye && !s.finishing) s.next = Now();
  }

  void OnMessage(Session& s) {
    if (s.goodbye) return;
    if (s.in.has_welcome()) {
      const v1::Welcome& welcome = s.in.welcome();
      s.welcomed = true;
      heartbeat_ = absl::Milliseconds(std::max(welcome.heartbeat_ms(), 10u));
      name_taken_limit_ =
          std::max(options_.name_taken_limit, absl::Milliseconds(welcome.lease_ms()) * 1.5);
      lease_ = std::max(absl::Milliseconds(welcome.lease_ms()), heartbeat_);
      s.next = Now() + heartbeat_;
      options_.hello.set_name(welcome.name());  // keeps a name that the master picked
      options_.hello.set_incarnation(welcome.incarnation());
      waiting_since_.reset();
      name_taken_since_.reset();
      backoff_.Reset();
      SPDLOG_INFO("joined the master at {} as {} (incarnation {})", options_.master_address,
                  welcome.name(), welcome.incarnation());
      SetJoined(true);
      if (callbacks_.welcome) callbacks_.welcome(welcome);
    } else if (s.in.has_assignment() && s.welcomed) {
      if (callbacks_.assignment) callbacks_.assignment(s.in.assignment());
    } else if (s.in.has_release()) {
      absl::MutexLock lock(&mu_);
      released_ = true;
    }
  }

  void SetJoined(bool joined) {
    absl::MutexLock lock(&mu_);
    joined_ = joined;
  }

  void Read(Session& s) {
    s.pending += 1;
    s.in.Clear();
    s.stream->Read(&s.in, ToPointer(Tag::kRead));
  }
  void Write(Session& s, const v1::NodeMessage& message) {
    s.pending += 1;
    s.writing = true;
    s.give_up = Now() + lease_;
    s.stream->Write(message, ToPointer(Tag::kWrite));
  }
  void Finish(Session& s) {
    s.pending += 1;
    s.finishing = true;
    s.stream->Finish(&s.status, ToPointer(Tag::kFinish));
    s.next = Now() + absl::Seconds(1);
  }

  v1::NodeMessage Hello() const {
    v1::NodeMessage message;
    *message.mutable_hello() = options_.hello;
    if (callbacks_.hello) callbacks_.hello(message.mutable_hello());
    return message;
  }

  // Half-closing tells the master that the node leaves on purpose.
  void SayGoodbye(Session& s) {
    s.pending += 1;
    s.stream->WritesDone(ToPointer(Tag::kWritesDone));
  }

  // Whether to join again after a stream ended with `status`; logs the wait for the master.
  bool KeepTrying(const absl::Status& status) {
    if (absl::IsAborted(status) && options_.hello.incarnation() != 0) {
      options_.hello.set_incarnation(0);
      backoff_.Reset();
      if (callbacks_.lost) callbacks_.lost(status);
      return true;
    }
    bool fatal = IsFatal(status);
    if (absl::IsAlreadyExists(status)) {
      if (!name_taken_since_.has_value()) name_taken_since_ = Now();
      fatal = Now() - *name_taken_since_ >= name_taken_limit_;
    } else {
      name_taken_since_.reset();
    }
    if (fatal) {
      if (callbacks_.fatal) {
        callbacks_.fatal(
            absl::Status(status.code(), absl::StrCat("the master at ", options_.master_address,
                                                     " refuses this process: ", status.message())));
      }
      return false;
    }
    const absl::Duration now = Now();
    if (!waiting_since_.has_value()) {
      waiting_since_ = now;
      logged_at_ = now - options_.log_every;
    }
    if (now - logged_at_ >= options_.log_every) {
      logged_at_ = now;
      SPDLOG_INFO("waiting for the master at {} ({} s): {}", options_.master_address,
                  absl::ToInt64Seconds(now - *waiting_since_), Why(status));
    }
    return true;
  }

  // At first what gRPC says, so that a master that has just gone is looked for at once.
  std::string Why(const absl::Status& status) {
    const bool unanswered = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!unanswered || *waiting_since_ == logged_at_) return std::string(status.message());
    MasterSurvey survey(options_.channels, options_.master_address);
    {
      absl::MutexLock lock(&mu_);
      survey_ = &survey;
      if (stopped_) survey.Cancel();
    }
    std::string why = survey.Why(status);
    absl::MutexLock lock(&mu_);
    survey_ = nullptr;
    return why;
  }

  static absl::Duration Now() { return SystemClock().Monotonic(); }

  // Constant after construction, except name and incarnation in options_.hello (thread_ only).
  Options options_;
  const Callbacks callbacks_;
  std::thread thread_;
  // Thread-safe by themselves.
  grpc::CompletionQueue queue_;
  grpc::Alarm wake_;
  grpc::Alarm beat_;  // triggers a heartbeat now
  // Used by thread_ only.
  Backoff backoff_;
  bool stop_ = false;
  absl::Duration heartbeat_ = absl::Seconds(1);
  absl::Duration lease_ = absl::Seconds(1);
  absl::Duration name_taken_limit_;
  std::optional<absl::Duration> waiting_since_;
  std::optional<absl::Duration> name_taken_since_;
  absl::Duration logged_at_;

  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  MasterSurvey* survey_ ABSL_GUARDED_BY(mu_) = nullptr;  // the one under way
  bool joined_ ABSL_GUARDED_BY(mu_) = false;             // the stream is up
  bool joins_no_more_ ABSL_GUARDED_BY(mu_) = false;      // refused for good, or stopped
  bool beat_set_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

uint64_t ClusterNode::DrawProcess() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

std::unique_ptr<ClusterNode> ClusterNode::Start(Options options, Callbacks callbacks) {
  options.hello.set_version(kVersion);
  options.hello.set_protocol(kProtocolVersion);
  options.hello.set_pid(getpid());
  if (options.hello.process() == 0) options.hello.set_process(DrawProcess());
  if (options.backoff.seed == 0) options.backoff.seed = options.hello.process();
  return std::make_unique<Node>(std::move(options), std::move(callbacks));
}

}  // namespace tessera
