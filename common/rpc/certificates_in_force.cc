#include "common/rpc/certificates_in_force.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr absl::Duration kWarnBefore = absl::Hours(14 * 24);

absl::Status WriteAll(int fd, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "cannot keep certificates in memory");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

CertificatesInForce::Link::~Link() {
  if (fd_ >= 0) ::close(fd_);
}

std::string CertificatesInForce::Link::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::Status CertificatesInForce::Link::Put(const std::string& content) {
  const int fd = ::memfd_create("tessera-certificates", MFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "memfd_create for certificates");
  absl::Status status = WriteAll(fd, content);
  if (status.ok() && fd_ < 0) {
    fd_ = fd;
    return status;
  }
  // At once: who opens the path has the one or the other.
  if (status.ok() && ::dup3(fd, fd_, O_CLOEXEC) < 0) {
    status = absl::ErrnoToStatus(errno, "dup3 for certificates");
  }
  ::close(fd);
  return status;
}

absl::StatusOr<std::unique_ptr<CertificatesInForce>> CertificatesInForce::Open(
    CertificateFiles paths, absl::Duration every, std::function<void()> look_too) {
  TESSERA_ASSIGN_OR_RETURN(CertificateFiles held, ReadInOrder(paths));
  std::unique_ptr<CertificatesInForce> opened(new CertificatesInForce(std::move(paths)));
  TESSERA_RETURN_IF_ERROR(opened->Put(std::move(held)));
  CertificatesInForce& those = *opened;
  opened->thread_ = std::thread([&those, every, look_too = std::move(look_too)] {
    while (!those.stop_.WaitForNotificationWithTimeout(every)) {
      those.Look();
      look_too();
    }
  });
  return opened;
}

CertificatesInForce::~CertificatesInForce() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

absl::Status CertificatesInForce::Put(CertificateFiles held) {
  TESSERA_RETURN_IF_ERROR(authorities_.Put(held.ca));
  TESSERA_RETURN_IF_ERROR(chain_and_key_.Put(absl::StrCat(held.certificate, "\n", held.key)));
  in_force_ = std::move(held);
  absl::MutexLock lock(&mu_);
  valid_until_ = ValidUntil(in_force_);
  return absl::OkStatus();
}

void CertificatesInForce::Look() {
  absl::StatusOr<CertificateFiles> held = ReadInOrder(paths_);
  absl::Status status = held.status();
  const bool others = status.ok() && *held != in_force_;
  if (others) status = Put(*std::move(held));
  if (others && status.ok()) SPDLOG_INFO("other certificates count for new connections from now");
  std::string complaint;
  absl::MutexLock lock(&mu_);
  if (!status.ok()) {
    complaint =
        absl::StrCat(status.message(), "; what was read before stays in force for new connections");
  } else if (valid_until_ - absl::Now() < kWarnBefore) {
    complaint = absl::StrCat(paths_.certificate.empty() ? "" : paths_.certificate + " or ",
                             paths_.ca, " expires within two weeks; nobody connects after that");
  }
  if (complaint == complaint_) return;
  if (complaint.empty()) {
    SPDLOG_INFO("the certificates and keys are in order again");
  } else {
    SPDLOG_WARN("{}", complaint);
  }
  complaint_ = std::move(complaint);
}

absl::Time CertificatesInForce::valid_until() const {
  absl::MutexLock lock(&mu_);
  return valid_until_;
}

std::string CertificatesInForce::complaint() const {
  absl::MutexLock lock(&mu_);
  return complaint_;
}

}  // namespace tessera
