#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"

namespace tessera::yaml {

// One scalar of a YAML file. `quoted` ones are text whatever they look like.
struct Scalar {
  std::string text;
  bool quoted = false;
};

// The scalar as a field's type. INVALID_ARGUMENT says what was expected and found ("expected a
// whole number, 0 or more, found 'ten'"). Pure.
absl::StatusOr<uint64_t> ToUnsigned(const Scalar& scalar, uint64_t largest);
absl::StatusOr<int64_t> ToSigned(const Scalar& scalar, int64_t smallest, int64_t largest);
// Finite, and within what a float holds if `single`.
absl::StatusOr<double> ToReal(const Scalar& scalar, bool single);
absl::StatusOr<bool> ToBool(const Scalar& scalar);
// By lower-case name; the value 0 stands for "not set" and has none.
absl::StatusOr<int> ToEnum(const Scalar& scalar, const google::protobuf::EnumDescriptor& type);
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);
// A value without a declared type: true, false, null, a finite number, or else text.
google::protobuf::Value ToValue(const Scalar& scalar);

}  // namespace tessera::yaml
