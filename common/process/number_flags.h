#pragma once

#include <cstdint>

#include "CLI/CLI.hpp"

// Checks of numbers on the command line. CLI11 by itself takes -1 for the largest number of the
// option's type, and what is too large for the largest, too; 010 for 8; and nan for one of any
// range.
namespace tessera {

// A transform: decimal digits that stand for `least` to `most`.
CLI::Validator WholeNumber(uint64_t most = UINT64_MAX, uint64_t least = 0);
// From `least` to `most`, which are finite.
CLI::Validator RealNumber(double least, double most);
// A transform: a number of bytes of at least `least`, as digits or with a unit: 1000, 64KiB, 8GiB
// (of 1024), 8GB or 8G (of 1024, too).
CLI::Validator ByteSize(uint64_t least = 0);

}  // namespace tessera
