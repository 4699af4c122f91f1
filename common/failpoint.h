#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Named places in the programs where tests inject a fault: a crash, an error or a delay, at the
// n-th time that a thread of the process passes. All are off unless armed; a place then costs one
// relaxed load. The state belongs to the whole process and is thread-safe.
struct FailpointPlace {
  std::string_view name;
  bool fails;  // the place can return an error
  std::string_view where;
};
inline constexpr FailpointPlace kFailpoints[] = {
    {"ps.push_log.append", true, "before a record is written"},
    {"ps.push_log.half_written", false, "between the text and the bulk of a record"},
    {"ps.push_log.appended", false, "a record is with the operating system"},
    {"ps.push_log.sync", true, "before the log is synced"},
    {"ps.push_log.synced", false, "the log is on the disk"},
    {"ps.push_log.segment", true, "the file of a segment is there, and empty"},
    {"ps.push_log.segment_begun", false, "a segment has its head"},
    {"ps.push_log.forget", false,
     "before a segment is deleted that a checkpoint has made needless"},
    {"ps.push.answer", false, "a push is applied and logged, and nobody knows"},
    {"ps.checkpoint.cut", false, "a checkpoint is cut, nothing of it is written"},
    {"ps.checkpoint.written", false, "a ps has written its part, the master does not know"},
    {"checkpoint.rows.append", true, "before bytes are written to a row file"},
    {"checkpoint.rows.sync", true, "before a row file is synced"},
    {"checkpoint.rows.synced", false, "a row file is on the disk, its name perhaps not"},
    {"checkpoint.manifest", true, "before a manifest is written"},
    {"atomic_file.synced", false, "a file (a manifest) is written under its temporary name"},
    {"atomic_file.renamed", false, "it has its name, which is perhaps not on the disk"},
    {"master.checkpoint.begin", true, "before the folder of a checkpoint is made"},
    {"master.checkpoint.committed", false, "a manifest is on the disk, the state log has it not"},
    {"master.checkpoint.prune", false, "before an old checkpoint is deleted"},
    {"master.state_log.apply", true, "before a write to the state log"},
    {"master.state_log.applied", false, "a write to the state log is on the disk"},
    {"worker.device.open", true, "a card is opened for a job; error: the card is lost"},
    {"worker.device.work", true, "before a card computes a batch; error: the card is lost"},
    {"worker.scores.send", true,
     "before scores are sent; error: the connection to the master breaks"},
    {"worker.ring.sum", false, "before a rank's dense gradients go to the others"},
    {"worker.ring.summed", false, "the ranks' dense gradients are summed, nothing is pushed"},
    {"worker.push.send", false, "before a message of a push is sent"},
    {"worker.push.answered", true, "a ps has answered a push; error: the answer is lost"},
    {"worker.push.again", true, "error: a copy of the message follows, later than the next ones"},
};

namespace internal_failpoint {

inline std::atomic<bool> armed{false};

// Fails to compile for an unknown name, and for a place whose `fails` is not kFails.
template <bool kFails>
class Name {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): callers write the name as a string.
  consteval Name(const char* name) : index_(0) {
    while (kFailpoints[index_].name != name) ++index_;  // past the end: a compile error
    if (kFailpoints[index_].fails != kFails) throw "the table says otherwise whether it fails";
  }
  constexpr size_t index() const { return index_; }

 private:
  size_t index_;
};

absl::Status Hit(size_t index);

}  // namespace internal_failpoint

// Call at a place that can fail. UNAVAILABLE: a rule injects an error now.
inline absl::Status Failpoint(internal_failpoint::Name<true> name) {
  if (!internal_failpoint::armed.load(std::memory_order_relaxed)) return absl::OkStatus();
  return internal_failpoint::Hit(name.index());
}
// Call at a place that cannot fail. A rule may end the process here, or delay it.
inline void PassFailpoint(internal_failpoint::Name<false> name) {
  if (!internal_failpoint::armed.load(std::memory_order_relaxed)) return;
  internal_failpoint::Hit(name.index()).IgnoreError();
}

inline constexpr char kFailpointsVariable[] = "TESSERA_FAILPOINTS";

// Arms the rules "name=action@when;...", e.g.
// "ps.push_log.synced=crash@3;worker.push.send=delay:200ms@2-5". Actions: crash (as kill -9 would),
// error, delay:DURATION. `when` selects hits: N, N-M, N- (from N on), N+K (N, N+K, N+2K, ...);
// without it the rule applies to every hit. main calls this once, before threads start; null and ""
// arm nothing. INVALID_ARGUMENT says what is wrong, and for an unknown name lists the known ones.
absl::Status ArmFailpoints(const char* rules);
// For tests.
void DisarmFailpoints();

}  // namespace tessera
