// Linked into every program of the tsan preset. ThreadSanitizer does not know memfd_create, and
// sees no close within Debian's libraries: where these give a number that such a close left, it
// takes the new file for the old descriptor, raced by the thread that had that one. This definition
// stands before libc's and gives a number that ThreadSanitizer has seen begin here, that of an
// eventfd.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

extern "C" int memfd_create(const char* name, unsigned int flags) noexcept {
  const bool at_exec = (flags & MFD_CLOEXEC) != 0;
  const int known = ::eventfd(0, at_exec ? EFD_CLOEXEC : 0);
  if (known < 0) return -1;
  // System calls, of which ThreadSanitizer sees nothing.
  const long file = ::syscall(SYS_memfd_create, name, flags);
  if (file < 0 || ::syscall(SYS_dup3, file, known, at_exec ? O_CLOEXEC : 0) < 0) {
    const int error = errno;
    ::close(known);
    errno = error;
    return -1;
  }
  ::syscall(SYS_close, file);
  return known;
}
