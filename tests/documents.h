#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/paths.h"

// What stands in a file of the checkout, for tests of what documents and scripts say.
namespace tessera {

inline std::string TextOf(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(SourcePath(file)).rdbuf();
  EXPECT_FALSE(text.str().empty()) << file;
  return text.str();
}

// What stands between the two.
inline std::string Between(const std::string& text, const std::string& begin,
                           const std::string& end) {
  const size_t from = text.find(begin);
  const size_t to = from == std::string::npos ? from : text.find(end, from + begin.size());
  EXPECT_NE(to, std::string::npos) << "there is no '" << begin << "' ... '" << end << "'";
  if (to == std::string::npos) return "";
  return text.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace tessera
