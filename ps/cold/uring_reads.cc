#include "ps/cold/uring_reads.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace tessera::ps {
namespace {

using rocksdb::FSReadRequest;

// A thread's ring.
class Ring {
 public:
  static constexpr unsigned kDepth = 64;

  Ring() : works_(io_uring_queue_init(kDepth, &ring_, 0) == 0) {}
  ~Ring() { End(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Has at most kDepth reads of one file in flight at once. Returns when none is in flight any
  // more: those that were read to their last byte have their result, the others are untouched.
  void Read(int fd, absl::Span<FSReadRequest> requests) {
    if (!works_) return;
    for (FSReadRequest& request : requests) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      io_uring_prep_read(entry, fd, request.scratch, static_cast<unsigned>(request.len),
                         request.offset);
      io_uring_sqe_set_data(entry, &request);
    }
    size_t left = requests.size();
    size_t in_flight = 0;
    while (left > 0 || in_flight > 0) {
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR) break;
      if (submitted > 0) {
        left -= submitted;
        in_flight += submitted;
      }
      in_flight -= Take();
    }
    if (left == 0 && in_flight == 0) return;
    // The kernel takes no more. The reads that it has may still write to the buffers.
    for (; in_flight > 0; in_flight -= Take()) {
      io_uring_cqe* entry = nullptr;
      const int waited = io_uring_wait_cqe(&ring_, &entry);
      if (waited < 0 && waited != -EINTR && waited != -EAGAIN) break;
    }
    End();
  }

 private:
  // Takes the reads that have ended; returns how many.
  size_t Take() {
    size_t ended = 0;
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      auto& request = *static_cast<FSReadRequest*>(io_uring_cqe_get_data(entry));
      if (entry->res >= 0 && static_cast<size_t>(entry->res) == request.len) {
        request.result = rocksdb::Slice(request.scratch, request.len);
        request.status = rocksdb::IOStatus::OK();
      }
      io_uring_cqe_seen(&ring_, entry);
      ++ended;
    }
    return ended;
  }
  void End() {
    if (std::exchange(works_, false)) io_uring_queue_exit(&ring_);
  }

  io_uring ring_;
  bool works_;
};

class File final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  // Owns `fd`.
  File(std::unique_ptr<rocksdb::FSRandomAccessFile> file, int fd)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), fd_(fd) {}
  ~File() override { ::close(fd_); }

  rocksdb::IOStatus MultiRead(FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override {
    if (count < 2) return FSRandomAccessFileOwnerWrapper::MultiRead(requests, count, options, dbg);
    thread_local Ring ring;
    const auto all = absl::MakeSpan(requests, count);
    for (FSReadRequest& request : all) request.result = {};
    for (size_t begin = 0; begin < count; begin += Ring::kDepth) {
      ring.Read(fd_, all.subspan(begin, Ring::kDepth));
    }
    // Read again one by one: this tells whether it is the end of the file or an error.
    for (FSReadRequest& request : all) {
      if (request.result.size() == request.len) continue;
      request.status =
          Read(request.offset, request.len, options, &request.result, request.scratch, dbg);
    }
    return rocksdb::IOStatus::OK();
  }

 private:
  const int fd_;
};

class Files final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "TesseraUringReads"; }

  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewRandomAccessFile(path, options, file, dbg);
    if (!status.ok() || !options.use_direct_reads) return status;
    if (const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC); fd >= 0) {
      *file = std::make_unique<File>(std::move(*file), fd);
    }
    return status;
  }
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> UringReads(std::shared_ptr<rocksdb::FileSystem> disk) {
  return std::make_shared<Files>(std::move(disk));
}

}  // namespace tessera::ps
