#pragma once

#include <new>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/process/no_thread.h"

namespace tessera::ps {

// Returns what `work` does: a Status or a StatusOr. RESOURCE_EXHAUSTED: this process had no memory,
// or no thread, for `what`.
template <typename Work>
auto OrExhausted(absl::string_view what, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this ps has no memory for ", what, "; use more ps, or machines with more memory"));
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    return NoThread(what);
  }
}

}  // namespace tessera::ps
