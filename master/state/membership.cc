#include "master/state/membership.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"

namespace tessera::master {
namespace {

constexpr size_t kDeadKept = 100;
// A name that the master picked stays with a process that may come back for this long.
constexpr absl::Duration kNameKept = absl::Minutes(1);

const char* KindName(v1::NodeKind kind) { return kind == v1::PS ? "ps" : "worker"; }

absl::Status CheckHello(const v1::Hello& hello) {
  if (hello.protocol() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "versions differ: ", hello.name().empty() ? "this process" : hello.name(), " has version ",
        hello.version(), " (protocol ", hello.protocol(), "), the master has version ", kVersion,
        " (protocol ", kProtocolVersion, "); run the same version everywhere"));
  }
  if (hello.kind() != v1::PS && hello.kind() != v1::WORKER) {
    return absl::InvalidArgumentError("Hello.kind must be PS or WORKER");
  }
  const bool plain = std::all_of(hello.name().begin(), hello.name().end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  });
  if (!plain || hello.name().size() > 63) {
    return absl::InvalidArgumentError(
        absl::StrCat("node name \"", absl::string_view(hello.name()).substr(0, 80),
                     "\": at most 63 letters, digits, '-', '.' and '_' expected"));
  }
  if (hello.address().size() > 255 || (hello.kind() == v1::PS && hello.address().empty())) {
    return absl::InvalidArgumentError("Hello.address must say host:port, at most 255 characters");
  }
  return absl::OkStatus();
}

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& name) {
    size_t digits = name.size();
    while (digits > 0 && absl::ascii_isdigit(static_cast<unsigned char>(name[digits - 1]))) {
      --digits;
    }
    absl::string_view number = absl::string_view(name).substr(digits);
    while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
    return std::make_tuple(absl::string_view(name).substr(0, digits), number.size(), number,
                           absl::string_view(name));
  };
  return split(a) < split(b);
}

absl::StatusOr<Membership::Joined> Membership::Join(const v1::Hello& hello, absl::Duration now,
                                                    absl::Time wall) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return status;
  Joined joined;
  const std::string name = hello.name().empty() ? PickName(hello.kind(), now) : hello.name();
  const auto welcome = [&](const Node& node) {
    joined.welcome.set_name(name);
    joined.welcome.set_incarnation(node.incarnation);
    joined.welcome.set_heartbeat_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.heartbeat)));
    joined.welcome.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.lease)));
    return joined;
  };
  const auto it = nodes_.find(name);
  const bool alive = it != nodes_.end() && it->second.alive;
  const bool expected = alive && it->second.expected;
  if (alive && (expected || now < may_return_until_) &&
      it->second.incarnation == hello.incarnation() && it->second.kind == hello.kind()) {
    Node& node = it->second;
    node.expected = false;
    node.address = hello.address();
    node.process = hello.process();
    node.pid = hello.pid();
    node.logged_jobs = {hello.logged_jobs().begin(), hello.logged_jobs().end()};
    node.last_seen = node.joined_at = now;
    node.last_seen_wall = wall;
    return welcome(node);
  }
  if (hello.incarnation() != 0) {
    return absl::AbortedError(
        absl::StrCat("incarnation ", hello.incarnation(), " of ", name, " is over"));
  }
  if (expected) {
    joined.replaced = Kill(it->second, "another process has its name", now);
  } else if (it != nodes_.end() && it->second.alive) {
    Node& other = it->second;
    if (hello.process() == 0 || other.process != hello.process()) {
      return absl::AlreadyExistsError(
          absl::StrCat("a live ", KindName(other.kind), " is named ", name, " (pid ", other.pid,
                       other.address.empty() ? "" : absl::StrCat(", serving at ", other.address),
                       "); start this process with another --name, or stop that one"));
    }
    joined.replaced = Kill(other, "its process joined again", now);
  }
  Node& node = Begin(hello.kind(), name, next_incarnation_++, now, wall);
  node.address = hello.address();
  node.process = hello.process();
  node.pid = hello.pid();
  node.logged_jobs = {hello.logged_jobs().begin(), hello.logged_jobs().end()};
  node.joined_at = now;
  last_change_ = now;
  return welcome(node);
}

Node& Membership::Begin(v1::NodeKind kind, const std::string& name, uint64_t incarnation,
                        absl::Duration now, absl::Time wall) {
  Node& node = nodes_[name];
  by_incarnation_.erase(node.incarnation);
  node = Node();
  node.kind = kind;
  node.name = name;
  node.incarnation = incarnation;
  node.alive = true;
  node.last_seen = now;
  node.last_seen_wall = wall;
  by_incarnation_[incarnation] = &node;
  return node;
}

std::optional<Membership::Death> Membership::Expect(v1::NodeKind kind, const std::string& name,
                                                    const std::string& address,
                                                    uint64_t incarnation, absl::Duration now,
                                                    absl::Time wall) {
  std::optional<Death> death;
  if (const auto other = nodes_.find(name);
      other != nodes_.end() && other->second.expected && other->second.incarnation != incarnation) {
    const uint64_t of_other = other->second.incarnation;
    death = {std::min(of_other, incarnation), name, "another process has its name"};
    if (of_other > incarnation) return death;
  }
  Node& node = Begin(kind, name, incarnation, now, wall);
  node.address = address;
  node.expected = true;
  return death;
}

bool Membership::Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, absl::Duration now,
                           absl::Time wall) {
  Node* const node = FindNode(incarnation);
  // A lease that has run out is over, whether or not Expire has seen it.
  if (node == nullptr || !node->alive || now - node->last_seen >= options_.lease) return false;
  node->last_seen = now;
  node->last_seen_wall = wall;
  node->expected = false;
  node->heartbeat = heartbeat;
  return true;
}

std::optional<Membership::Death> Membership::Leave(uint64_t incarnation, const std::string& reason,
                                                   absl::Duration now) {
  Node* const node = FindNode(incarnation);
  if (node == nullptr || !node->alive) return std::nullopt;
  return Kill(*node, reason, now);
}

void Membership::StoodStill(absl::Duration gap, absl::Duration now) {
  for (auto& [name, node] : nodes_) {
    if (node.alive) node.last_seen = std::min(node.last_seen + gap, now);
  }
  may_return_until_ = now + options_.lease;
}

bool Membership::Outlives(uint64_t incarnation, absl::Duration joined_at, bool broke,
                          absl::Duration now) {
  Node* const node = FindNode(incarnation);
  if (node == nullptr || !node->alive) return false;
  if (node->joined_at != joined_at) return true;
  if (!broke || now >= may_return_until_) return false;
  node->expected = true;
  node->last_seen = now;
  return true;
}

void Membership::ForgetLog(uint64_t incarnation, const std::string& job_id) {
  if (Node* const node = FindNode(incarnation)) node->logged_jobs.erase(job_id);
}

void Membership::Release(uint64_t incarnation) {
  if (Node* const node = FindNode(incarnation)) node->released = true;
}

std::vector<Membership::Death> Membership::Expire(absl::Duration now) {
  std::vector<Death> deaths;
  for (auto& [name, node] : nodes_) {
    const absl::Duration lease = node.expected ? options_.rejoin : options_.lease;
    if (!node.alive || now - node.last_seen < lease) continue;
    deaths.push_back(
        Kill(node,
             absl::StrCat(node.expected ? "it has not joined in " : "no heartbeat for ",
                          absl::FormatDuration(lease)),
             now));
  }
  ForgetOldDead();
  return deaths;
}

Membership::Death Membership::Kill(Node& node, const std::string& reason, absl::Duration now) {
  node.alive = false;
  last_change_ = now;
  return {node.incarnation, node.name, reason};
}

const Node* Membership::Find(uint64_t incarnation) const {
  const auto found = by_incarnation_.find(incarnation);
  return found == by_incarnation_.end() ? nullptr : found->second;
}

Node* Membership::FindNode(uint64_t incarnation) {
  const auto found = by_incarnation_.find(incarnation);
  return found == by_incarnation_.end() ? nullptr : found->second;
}

bool Membership::IsAlive(uint64_t incarnation) const {
  const Node* node = Find(incarnation);
  return node != nullptr && node->alive;
}

std::vector<const Node*> Membership::Alive(v1::NodeKind kind) const {
  std::vector<const Node*> alive;
  for (const Node* node : All()) {
    if (node->alive && node->kind == kind) alive.push_back(node);
  }
  return alive;
}

std::vector<const Node*> Membership::Staying(v1::NodeKind kind) const {
  std::vector<const Node*> staying = Alive(kind);
  staying.erase(std::remove_if(staying.begin(), staying.end(),
                               [](const Node* node) { return node->heartbeat.leaving(); }),
                staying.end());
  return staying;
}

std::vector<const Node*> Membership::All() const {
  std::vector<const Node*> all;
  for (const auto& [name, node] : nodes_) all.push_back(&node);
  std::sort(all.begin(), all.end(), [](const Node* a, const Node* b) {
    return a->kind != b->kind ? a->kind < b->kind : NaturalLess(a->name, b->name);
  });
  return all;
}

std::string Membership::PickName(v1::NodeKind kind, absl::Duration now) const {
  for (uint32_t i = 0;; ++i) {
    std::string name = absl::StrCat(KindName(kind), "-", i);
    auto it = nodes_.find(name);
    if (it == nodes_.end()) return name;
    if (!it->second.alive && now - it->second.last_seen > kNameKept) return name;
  }
}

void Membership::ForgetOldDead() {
  while (true) {
    size_t dead = 0;
    auto oldest = nodes_.end();
    for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
      if (it->second.alive) continue;
      ++dead;
      if (oldest == nodes_.end() || it->second.last_seen < oldest->second.last_seen) oldest = it;
    }
    if (dead <= kDeadKept) return;
    by_incarnation_.erase(oldest->second.incarnation);
    nodes_.erase(oldest);
  }
}

}  // namespace tessera::master
