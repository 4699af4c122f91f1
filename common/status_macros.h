#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// TESSERA_RETURN_IF_ERROR(expr): returns expr's status from the function unless it is OK.
#define TESSERA_RETURN_IF_ERROR(expr)                                                      \
  do {                                                                                     \
    if (absl::Status tessera_status = (expr); !tessera_status.ok()) return tessera_status; \
  } while (false)

// TESSERA_ASSIGN_OR_RETURN(lhs, expr): sets lhs to the value of a StatusOr, or returns its status
// from the function.
#define TESSERA_ASSIGN_OR_RETURN(lhs, expr) \
  TESSERA_ASSIGN_OR_RETURN_IMPL(TESSERA_CONCAT(tessera_or_, __LINE__), lhs, expr)
#define TESSERA_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = std::move(tmp).value()
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_INNER(a, b)
#define TESSERA_CONCAT_INNER(a, b) a##b

namespace tessera {

// The same status with "context: " before its message; OK stays OK.
inline absl::Status WithContext(absl::Status status, absl::string_view context) {
  if (status.ok()) return status;
  std::string message(context);
  message += ": ";
  message.append(status.message().data(), status.message().size());
  return absl::Status(status.code(), message);
}

}  // namespace tessera
