#include "common/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/round_up.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

absl::Status HasMore(const std::string& path, size_t most_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": has more than ", most_bytes, " bytes"));
}

absl::Status ErrnoStatus(int error, absl::string_view what, const std::string& path) {
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case ENXIO:  // a socket, or opening a pipe for writing that nobody reads
      return absl::InvalidArgumentError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

class PosixWritableFile final : public WritableFile {
 public:
  // `old_bytes`: the size of the file that is overwritten.
  PosixWritableFile(int fd, std::string path, uint64_t old_bytes = 0)
      : fd_(fd), path_(std::move(path)), old_bytes_(old_bytes) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write to", path_);
      bytes.remove_prefix(static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
    return size_ < old_bytes_ ? FillBlock() : absl::OkStatus();
  }
  absl::Status Drain(uint64_t behind) override {
    TESSERA_RETURN_IF_ERROR(SyncRange(begun_, size_, SYNC_FILE_RANGE_WRITE));
    begun_ = size_;
    const uint64_t end = size_ - std::min(size_, behind);
    if (end <= drained_) return absl::OkStatus();
    if (syncs_whole_) {
      TESSERA_RETURN_IF_ERROR(Sync());
      drained_ = size_;
      return absl::OkStatus();
    }
    constexpr unsigned kWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    TESSERA_RETURN_IF_ERROR(SyncRange(drained_, end, kWait));
    drained_ = end;
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    return ::fdatasync(fd_) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "fdatasync", path_);
  }
  absl::Status Close() override {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "close", path_);
  }

 private:
  // Writes zeros behind the last byte, up to the end of its block: if only a part of a block is
  // new, the kernel reads the block from the disk first unless the page cache has it.
  absl::Status FillBlock() {
    static constexpr char kZeros[kBlock] = {};
    const uint64_t end = std::min(old_bytes_, RoundUp(size_, kBlock));
    for (uint64_t at = size_; at < end;) {
      const ssize_t n = ::pwrite(fd_, kZeros, end - at, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write to", path_);
      at += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }
  absl::Status SyncRange(uint64_t begin, uint64_t end, unsigned flags) {
    if (begin == end) return absl::OkStatus();
    const auto from = static_cast<off64_t>(begin), bytes = static_cast<off64_t>(end - begin);
    if (::sync_file_range(fd_, from, bytes, flags) == 0) return absl::OkStatus();
    if (errno == ESPIPE) return absl::OkStatus();  // a pipe has no disk
    if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, "sync_file_range", path_);
    syncs_whole_ = true;
    return absl::OkStatus();
  }

  static constexpr uint64_t kBlock = 4096;

  int fd_;
  const std::string path_;
  const uint64_t old_bytes_;
  uint64_t size_ = 0;         // of the appended bytes
  uint64_t begun_ = 0;        // writing has begun for the bytes before
  uint64_t drained_ = 0;      // the bytes before are written
  bool syncs_whole_ = false;  // the file has no sync_file_range
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int fd, uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~PosixReadableFile() override { ::close(fd_); }
  uint64_t Size() const override { return size_; }
  absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n =
          ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read", path_);
      if (n == 0) {
        return absl::OutOfRangeError(absl::StrCat(path_, ": ends at byte ", offset + done,
                                                  ", expected at least ", offset + out.size()));
      }
      done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

 private:
  const int fd_;
  const uint64_t size_;
  const std::string path_;
};

const char* Kind(mode_t mode) {
  if (S_ISDIR(mode)) return "folder";
  if (S_ISFIFO(mode)) return "pipe";
  return "device";
}

// Opens a regular file, fills `info`. Never waits, as opening a pipe would until its other end
// opens.
absl::StatusOr<int> OpenThatIsThere(const std::string& path, int flags, struct stat& info) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  absl::Cleanup close = [fd] { ::close(fd); };
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a ", Kind(info.st_mode), ", expected a regular file"));
  }
  if (::fcntl(fd, F_SETFL, flags) != 0) return ErrnoStatus(errno, "open", path);
  std::move(close).Cancel();
  return fd;
}

class Posix final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus(errno, "create", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    struct stat info;
    TESSERA_ASSIGN_OR_RETURN(const int fd, OpenThatIsThere(path, O_WRONLY, info));
    return std::make_unique<PosixWritableFile>(fd, path, static_cast<uint64_t>(info.st_size));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    struct stat info;
    TESSERA_ASSIGN_OR_RETURN(const int fd, OpenThatIsThere(path, O_RDONLY, info));
    return std::make_unique<PosixReadableFile>(fd, static_cast<uint64_t>(info.st_size), path);
  }
  absl::Status SyncFile(const std::string& path) override {
    struct stat info;
    TESSERA_ASSIGN_OR_RETURN(const int fd, OpenThatIsThere(path, O_RDONLY, info));
    const int result = ::fdatasync(fd);
    const int error = errno;
    ::close(fd);
    return result == 0 ? absl::OkStatus() : ErrnoStatus(error, "fdatasync", path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return error ? ErrnoStatus(error.value(), "create folder", path) : absl::OkStatus();
  }
  absl::Status SyncFolder(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "open folder", path);
    const int result = ::fsync(fd);
    const int error = errno;
    ::close(fd);
    return result == 0 ? absl::OkStatus() : ErrnoStatus(error, "fsync folder", path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                   : ErrnoStatus(errno, "rename to", to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    if (errno == EPERM || errno == EXDEV || errno == EMLINK || errno == EOPNOTSUPP ||
        errno == ENOSYS) {
      return absl::UnimplementedError(absl::StrCat("link ", to, ": ", std::strerror(errno)));
    }
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat("link ", to, ": exists"));
    return ErrnoStatus(errno, "link", to);
  }
  absl::Status Remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
  }
  absl::Status RemoveIfEmpty(const std::string& folder) override {
    if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    if (errno == ENOTEMPTY || errno == EEXIST) return absl::OkStatus();
    return ErrnoStatus(errno, "remove", folder);
  }
  bool IsLink(const std::string& path) override {
    std::error_code error;
    return std::filesystem::is_symlink(path, error);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator it(folder, error);
    if (error) return ErrnoStatus(error.value(), "list", folder);
    for (; it != std::filesystem::directory_iterator(); it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    // A failed increment has ended the loop.
    if (error) return ErrnoStatus(error.value(), "list", folder);
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t FreeBytes(const std::string& folder) override {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(folder, error);
    return error ? kUnknownBytes : space.available;
  }
};

// The number of this process's descriptor that a link stands for, as the target of /dev/stdout
// does; none: it is another link.
std::optional<int> DescriptorOf(const std::filesystem::path& link) {
  std::error_code error;
  int number = 0;
  const bool is_own = absl::SimpleAtoi(link.filename().string(), &number) &&
                      std::filesystem::equivalent(link.parent_path(), "/proc/self/fd", error) &&
                      !error;
  return is_own ? std::optional(number) : std::nullopt;
}

}  // namespace

absl::Status FileSystem::RemoveIfEmpty(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok() || !names->empty()) return names.status();
  return Remove(folder);
}

FileSystem& PosixFileSystem() {
  static Posix fs;
  return fs;
}

absl::StatusOr<Destination> DestinationOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    return Destination{.path = path, .special = Kind(info.st_mode)};
  }
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(at, error); ++links) {
    constexpr int kMostLinks = 40;  // the kernel's limit
    if (links == kMostLinks) return ErrnoStatus(ELOOP, "write to", path);
    if (const std::optional<int> descriptor = DescriptorOf(at)) {
      return Destination{.path = path, .special = "descriptor", .descriptor = *descriptor};
    }
    const std::filesystem::path target = std::filesystem::read_symlink(at, error);
    if (error) return ErrnoStatus(error.value(), "read link", at.string());
    at = at.parent_path() / target;  // `target` alone if it is absolute
  }
  return Destination{.path = at.string()};
}

absl::Status WriteOutput(const std::string& path, absl::string_view content) {
  TESSERA_ASSIGN_OR_RETURN(const Destination destination, DestinationOf(path));
  FileSystem& fs = PosixFileSystem();
  if (destination.special == nullptr) return WriteFileAtomically(fs, destination.path, content);
  std::unique_ptr<WritableFile> file;
  if (destination.descriptor >= 0) {
    const int fd = ::fcntl(destination.descriptor, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return ErrnoStatus(errno, "write to", path);
    file = std::make_unique<PosixWritableFile>(fd, path);
  } else {
    TESSERA_ASSIGN_OR_RETURN(file, fs.Create(destination.path));
  }
  TESSERA_RETURN_IF_ERROR(file->Append(content));
  return file->Close();
}

absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path,
                                 absl::string_view content) {
  const std::string temporary = path + ".tmp";
  absl::Status status = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(temporary));
    TESSERA_RETURN_IF_ERROR(file->Append(content));
    TESSERA_RETURN_IF_ERROR(file->Sync());
    TESSERA_RETURN_IF_ERROR(file->Close());
    PassFailpoint("atomic_file.synced");
    return fs.Rename(temporary, path);
  }();
  if (!status.ok()) {
    fs.Remove(temporary).IgnoreError();
    return status;
  }
  PassFailpoint("atomic_file.renamed");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return fs.SyncFolder(folder.empty() ? "." : folder);
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path,
                                          size_t most_bytes) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs.Open(path));
  if (file->Size() > most_bytes) return HasMore(path, most_bytes);
  std::string content(file->Size(), '\0');
  TESSERA_RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(content)));
  return content;
}

absl::StatusOr<std::string> ReadStream(const std::string& path, size_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  const absl::Cleanup close = [fd] { ::close(fd); };
  constexpr size_t kBlock = 1 << 16;
  std::string content;
  while (true) {
    const size_t had = content.size();
    content.resize(had + kBlock);
    const ssize_t n = ::read(fd, content.data() + had, kBlock);
    const int error = errno;
    content.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return content;
    if (n < 0 && error != EINTR) return ErrnoStatus(error, "read", path);
    if (content.size() > most_bytes) return HasMore(path, most_bytes);
  }
}

absl::StatusOr<std::string> PathBelow(const std::string& root, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return absl::InvalidArgumentError("empty path");
  const fs::path base = fs::path(root).lexically_normal();
  const fs::path full = (base / path).lexically_normal();
  const fs::path relative = full.lexically_relative(base);
  if (relative.empty() || *relative.begin() == "..") {
    return absl::InvalidArgumentError(absl::StrCat(path, ": lies outside ", root));
  }
  return full.string();
}

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(folder));
  const std::string path = folder + "/LOCK";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {  // such as of a file service without locks
      const int error = errno;
      ::close(fd);
      return ErrnoStatus(error, "lock", path);
    }
    char pid[32] = {};
    const ssize_t n = ::pread(fd, pid, sizeof(pid) - 1, 0);
    ::close(fd);
    return absl::FailedPreconditionError(absl::StrCat(folder, ": in use by process ",
                                                      n > 0 ? pid : "?",
                                                      "; give each process a folder of its own"));
  }
  const std::string self = std::to_string(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, self.data(), self.size(), 0) < 0) {
    const int error = errno;
    ::close(fd);
    return ErrnoStatus(error, "write to", path);
  }
  return std::unique_ptr<FolderLock>(new FolderLock(fd));
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace tessera
