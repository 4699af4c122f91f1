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

// One scalar of a YAML file. A `quoted` one is text whatever it looks like.
struct Scalar {
  std::string text;
  bool quoted = false;
};

// Convert the scalar to a field's type. INVALID_ARGUMENT says what was expected and found
// ("expected a whole number, 0 or more, found 'ten'"). Pure.
absl::StatusOr<uint64_t> ToUnsigned(const Scalar& scalar, uint64_t largest);
absl::StatusOr<int64_t> ToSigned(const Scalar& scalar, int64_t smallest, int64_t largest);
// A finite number, within the range of float if `single`.
absl::StatusOr<double> ToReal(const Scalar& scalar, bool single);
absl::StatusOr<bool> ToBool(const Scalar& scalar);
// The enum value of a lower-case name; the value 0 means "not set" and has no name.
absl::StatusOr<int> ToEnum(const Scalar& scalar, const google::protobuf::EnumDescriptor& type);
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);
// A value without a declared type: true, false, null, a finite number, or else text.
google::protobuf::Value ToValue(const Scalar& scalar);

}  // namespace tessera::yaml
