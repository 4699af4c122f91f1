#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// Parses the values of fields. Each function returns null when it has set its result. Otherwise it
// returns what is wrong, to be put after the text: "is not a number". Spaces and tabs around
// numbers are skipped. Called for every field of every record, so nothing is allocated.

// A finite number that fits a float.
const char* ParseNumber(absl::string_view text, float* value);
// 0 or 1 in any spelling of these numbers; `minus_one` also takes -1, as 0.
const char* ParseLabel(absl::string_view text, bool minus_one, float* label);
// A label that `form` allows; `minus_one` as in ParseLabel. For a class that is too large, the
// message does not say the range: ClassRange does.
const char* ParseLabelOf(const LabelForm& form, absl::string_view text, bool minus_one,
                         float* label);
// Whether a field says that the record has no label: it is empty, or it is `missing`, as text or as
// the same number. NaN is a number here.
bool IsMissingLabel(absl::string_view text, absl::string_view missing);
// "; expected 0 .. 9" for labels that are classes, else nothing.
std::string ClassRange(const LabelForm& form);
// 0 or more.
const char* ParseWeight(absl::string_view text, float* weight);
// An integer in 0 .. 2^63-1.
const char* ParseIntegerKey(absl::string_view text, uint64_t* key);
// Whether two texts are equal but for spaces and tabs around them.
bool IsSameText(absl::string_view a, absl::string_view b);

// sign(x) * log(1 + |x|).
float SignedLog1p(float x);

// The text in quotes for a message: cut when long, unprintable bytes escaped.
std::string Quoted(absl::string_view text);

}  // namespace tessera::worker
