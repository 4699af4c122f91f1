#include "tests/bench/wire_redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "tests/common/free_port.h"

namespace tessera::bench {
namespace {

constexpr char kServer[] = "redis-server";
constexpr size_t kReadBytes = 256 << 10;

bool Installed() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + kServer).c_str(), X_OK) == 0) return true;
  }
  return false;
}

int Connect(int port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(s, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return s;
  close(s);
  return -1;
}

void AppendBulk(const void* data, size_t size, std::string* out) {
  absl::StrAppend(out, "$", size, "\r\n");
  out->append(static_cast<const char*>(data), size);
  out->append("\r\n");
}

absl::Status Broken(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("redis-server: ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisPeer>> RedisPeer::Start() {
  if (!Installed()) return absl::NotFoundError("redis-server is not installed");
  const int port = FreePortForServer();
  const std::string text = absl::StrCat(port);
  const char* arguments[] = {kServer,     "--port",     text.c_str(), "--bind",
                             "127.0.0.1", "--save",     "",           "--appendonly",
                             "no",        "--loglevel", "warning",    nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, kServer, nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) {
    return Broken("cannot be started");
  }
  const absl::Time give_up = absl::Now() + absl::Seconds(10);
  int connected = -1;
  while ((connected = Connect(port)) < 0 && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  std::unique_ptr<RedisPeer> peer(new RedisPeer(pid, connected));
  if (connected < 0) return Broken(absl::StrCat("does not listen on port ", port));
  return peer;
}

RedisPeer::~RedisPeer() {
  if (socket_ >= 0) close(socket_);
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

absl::Status RedisPeer::Write(const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return Broken("hung up");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status RedisPeer::Refill() {
  in_.erase(0, at_);
  at_ = 0;
  const size_t old = in_.size();
  in_.resize(old + kReadBytes);
  const ssize_t n = recv(socket_, in_.data() + old, kReadBytes, 0);
  in_.resize(old + std::max<ssize_t>(n, 0));
  return n > 0 ? absl::OkStatus() : Broken("hung up");
}

absl::StatusOr<std::string> RedisPeer::Line() {
  size_t end;
  while ((end = in_.find("\r\n", at_)) == std::string::npos) TESSERA_RETURN_IF_ERROR(Refill());
  std::string line = in_.substr(at_, end - at_);
  at_ = end + 2;
  if (!line.empty() && line[0] == '-') return Broken(line);
  return line;
}

absl::Status RedisPeer::Skip(size_t n) {
  while (in_.size() - at_ < n + 2) TESSERA_RETURN_IF_ERROR(Refill());
  at_ += n + 2;
  return absl::OkStatus();
}

absl::Status RedisPeer::Fill(uint64_t count, uint64_t value_bytes) {
  constexpr uint64_t kAtOnce = 1 << 16;
  std::vector<uint64_t> keys;
  for (uint64_t first = 0; first < count; first += keys.size()) {
    keys.resize(std::min(kAtOnce, count - first));
    std::iota(keys.begin(), keys.end(), first);
    TESSERA_RETURN_IF_ERROR(Set(keys, value_bytes, 1024));
  }
  return absl::OkStatus();
}

absl::Status RedisPeer::Set(absl::Span<const uint64_t> keys, uint64_t value_bytes,
                            size_t per_command) {
  const std::string value(value_bytes, 'v');
  std::string commands;
  for (size_t first = 0; first < keys.size(); first += per_command) {
    const auto some = keys.subspan(first, per_command);
    absl::StrAppend(&commands, "*", 1 + 2 * some.size(), "\r\n");
    AppendBulk("MSET", 4, &commands);
    for (const uint64_t key : some) {
      AppendBulk(&key, sizeof(key), &commands);
      AppendBulk(value.data(), value.size(), &commands);
    }
  }
  return Exchange(commands, [&]() -> absl::Status {
    for (size_t first = 0; first < keys.size(); first += per_command) {
      TESSERA_RETURN_IF_ERROR(Line().status());
    }
    return absl::OkStatus();
  });
}

absl::Status RedisPeer::Get(absl::Span<const uint64_t> keys, uint64_t value_bytes,
                            size_t per_command) {
  std::string commands;
  for (size_t first = 0; first < keys.size(); first += per_command) {
    const auto some = keys.subspan(first, per_command);
    absl::StrAppend(&commands, "*", 1 + some.size(), "\r\n");
    AppendBulk("MGET", 4, &commands);
    for (const uint64_t key : some) AppendBulk(&key, sizeof(key), &commands);
  }
  const std::string header = absl::StrCat("$", value_bytes);
  return Exchange(commands, [&]() -> absl::Status {
    for (size_t first = 0; first < keys.size(); first += per_command) {
      const size_t n = std::min(per_command, keys.size() - first);
      TESSERA_ASSIGN_OR_RETURN(const std::string array, Line());
      if (array != absl::StrCat("*", n)) return absl::InternalError("redis-server: " + array);
      for (size_t i = 0; i < n; ++i) {
        TESSERA_ASSIGN_OR_RETURN(const std::string value, Line());
        if (value != header) return absl::InternalError("redis-server: a value of " + value);
        TESSERA_RETURN_IF_ERROR(Skip(value_bytes));
      }
    }
    return absl::OkStatus();
  });
}

// Commands are written by a thread of its own, or both sides would wait for the other to read.
absl::Status RedisPeer::Exchange(const std::string& commands,
                                 absl::FunctionRef<absl::Status()> read) {
  absl::Status written;
  std::thread writer([&] { written = Write(commands); });
  const absl::Status status = read();
  if (!status.ok()) shutdown(socket_, SHUT_RDWR);
  writer.join();
  return status.ok() ? written : status;
}

}  // namespace tessera::bench
