#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::master {

// A process that has joined. Times of type absl::Duration are of the monotonic clock.
struct Node {
  v1::NodeKind kind = v1::NODE_KIND_UNSPECIFIED;
  std::string name;
  std::string address;
  uint64_t incarnation = 0;
  uint64_t process = 0;
  int64_t pid = 0;
  bool alive = false;
  absl::Duration last_seen;
  absl::Duration joined_at;  // by the process's latest stream
  absl::Time last_seen_wall;
  bool expected = false;  // it lives, but has not joined this master yet or its stream broke
  bool released = false;  // it asked to stop, and may
  v1::Heartbeat heartbeat;
  std::set<std::string> logged_jobs;  // Hello.logged_jobs, but for those of ForgetLog
};

// The processes of the cluster: names, incarnations, leases, deaths. A pure core: only calls and
// injected time change its state. An incarnation that is dead never returns; incarnations always
// grow, across restarts of the master too (`first_incarnation` comes from the state log). Not
// thread-safe.
class Membership {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    absl::Duration heartbeat = absl::Seconds(2);
    // How long a process that an earlier master knew may take to find this one.
    absl::Duration rejoin = absl::Seconds(20);
  };
  struct Death {
    uint64_t incarnation = 0;
    std::string name;
    std::string reason;  // "no heartbeat for 10s"
  };
  struct Joined {
    v1::Welcome welcome;
    // The incarnation that had the name before: the same process, whose stream had not been seen to
    // break, or a process that was expected.
    std::optional<Death> replaced;
  };

  Membership(const Options& options, uint64_t first_incarnation)
      : options_(options), next_incarnation_(first_incarnation) {}

  // FAILED_PRECONDITION: versions differ. ALREADY_EXISTS: a live node has the name. ABORTED: the
  // process asks for its incarnation again (Hello.incarnation), which is over. INVALID_ARGUMENT: no
  // kind, a name of other than letters, digits, '.', '-', '_', or a ps without an address.
  absl::StatusOr<Joined> Join(const v1::Hello& hello, absl::Duration now, absl::Time wall);
  // Adds a process that an earlier master had accepted under this incarnation: it counts as alive
  // and is expected to join with it (Hello.incarnation). A process that joins under this name
  // without the incarnation takes its place. If two are expected under one name, the older
  // incarnation is dead and is returned.
  std::optional<Death> Expect(v1::NodeKind kind, const std::string& name,
                              const std::string& address, uint64_t incarnation, absl::Duration now,
                              absl::Time wall);
  // False: this incarnation is dead, and its stream must end.
  bool Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, absl::Duration now,
                 absl::Time wall);
  // The process is dead: its stream ended. nullopt: the incarnation is dead already.
  std::optional<Death> Leave(uint64_t incarnation, const std::string& reason, absl::Duration now);
  // The master has heard nobody for `gap`, until now. The gap counts against nobody's lease, and
  // for the length of a lease from now a process whose stream breaks, or has broken, may come back
  // as the same incarnation.
  void StoodStill(absl::Duration gap, absl::Duration now);
  // Whether a process lives on after the end of the stream by which it joined at `joined_at`:
  // either it has joined by another stream since, or the stream `broke` and the process may come
  // back (StoodStill) within Options::rejoin.
  bool Outlives(uint64_t incarnation, absl::Duration joined_at, bool broke, absl::Duration now);
  // The process has no log of that job any more, or is told so by its Welcome.
  void ForgetLog(uint64_t incarnation, const std::string& job_id);
  // A ps that asked to stop (Heartbeat.leaving) may stop.
  void Release(uint64_t incarnation);
  // Kills the nodes whose lease has run out by now, and returns them.
  std::vector<Death> Expire(absl::Duration now);

  // The node, alive or dead; null: unknown, or another incarnation has its name now.
  const Node* Find(uint64_t incarnation) const;
  bool IsAlive(uint64_t incarnation) const;
  // In natural order of names: worker-2 before worker-10.
  std::vector<const Node*> Alive(v1::NodeKind kind) const;
  // The nodes that live and are not about to stop.
  std::vector<const Node*> Staying(v1::NodeKind kind) const;
  std::vector<const Node*> All() const;  // ps first, then workers; the dead are kept for a while
  // When a node joined or died last; for waiting until a cluster has settled.
  absl::Duration last_change() const { return last_change_; }
  uint64_t next_incarnation() const { return next_incarnation_; }

 private:
  // A node that begins anew under the name.
  Node& Begin(v1::NodeKind kind, const std::string& name, uint64_t incarnation, absl::Duration now,
              absl::Time wall);
  Node* FindNode(uint64_t incarnation);
  std::string PickName(v1::NodeKind kind, absl::Duration now) const;
  void ForgetOldDead();
  Death Kill(Node& node, const std::string& reason, absl::Duration now);

  const Options options_;
  uint64_t next_incarnation_;
  absl::Duration last_change_;
  absl::Duration may_return_until_;
  std::map<std::string, Node> nodes_;                   // by name
  std::unordered_map<uint64_t, Node*> by_incarnation_;  // of nodes_
};

// worker-2 before worker-10: digits at the end compare as a number.
bool NaturalLess(const std::string& a, const std::string& b);

}  // namespace tessera::master
