#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// The values of fields. Each function returns null when it has set its result, else what is wrong
// with the text, to be said after it: "is not a number". Spaces and tabs around numbers are passed
// over. They are called for every field of every record: no allocation.

// A finite number that fits a float.
const char* ParseNumber(absl::string_view text, float* value);
// 0 or 1 in any spelling of these numbers; `minus_one` also takes -1, as 0.
const char* ParseLabel(absl::string_view text, bool minus_one, float* label);
// What `form` allows; `minus_one` as above. Of a class beyond them the message says no number: see
// ClassRange.
const char* ParseLabelOf(const LabelForm& form, absl::string_view text, bool minus_one,
                         float* label);
// "; expected 0 .. 9" for labels that are classes, else nothing.
std::string ClassRange(const LabelForm& form);
// 0 or more.
const char* ParseWeight(absl::string_view text, float* weight);
// An integer in 0 .. 2^63-1.
const char* ParseIntegerKey(absl::string_view text, uint64_t* key);

// sign(x) * log(1 + |x|).
float SignedLog1p(float x);

// The text in quotes for a message: cut when long, unprintable bytes escaped.
std::string Quoted(absl::string_view text);

}  // namespace tessera::worker
