#pragma once

#include <cstdint>

#include "CLI/CLI.hpp"

// Checks of numbers on the command line. CLI11 alone takes -1, and numbers that are too large, for
// the largest number of the option's type, 010 for 8, and nan for a number in any range.
namespace tessera {

// A transform that takes decimal digits for `least` to `most`.
CLI::Validator WholeNumber(uint64_t most = UINT64_MAX, uint64_t least = 0);
// Takes a number from `least` to `most`, which are finite.
CLI::Validator RealNumber(double least, double most);
// A transform that takes a number of bytes, at least `least`, as digits or with a unit: 1000,
// 64KiB, 8GiB; 8GB and 8G are of 1024, too.
CLI::Validator ByteSize(uint64_t least = 0);

}  // namespace tessera
