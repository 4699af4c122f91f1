// Lists that are kept by hand, for people and in scripts: each has every name that there is.
#include <regex>
#include <set>
#include <sstream>

#include "tests/documents.h"
#include "tests/optimizers.h"
#include "tests/worker/onnx_testing.h"
#include "worker/dense/ops/ops.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker::testing {
namespace {

using Names = std::set<std::string>;

// All that the pattern's group matches.
Names Found(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Names names;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex);
       it != std::sregex_iterator(); ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

Names WordsOf(const std::string& text) { return Found(text, "(\\w+)"); }

// The words in the first cells of the table of that header.
Names FirstCells(const std::string& file, const std::string& header) {
  std::string cells;
  std::istringstream rows(Between(TextOf(file), "\n| " + header + " |", "\n\n"));
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("| ")) cells += Between(row, "| ", " |") + " ";
  }
  return WordsOf(cells);
}

void ExpectAll(const Names& found, const std::vector<std::string>& names,
               const std::string& where) {
  for (const std::string& name : names) {
    EXPECT_TRUE(found.contains(name)) << where << " has no " << name;
  }
}

void ExpectThese(const Names& found, const std::vector<std::string>& names,
                 const std::string& where) {
  ExpectAll(found, names, where);
  for (const std::string& name : found) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1)
        << where << " has " << name << ", which there is not";
  }
}

TEST(Lists, HaveEveryOp) {
  std::vector<std::string> names;
  for (const OpEntry& entry : AllOps()) names.push_back(entry.name);
  ExpectThese(FirstCells("worker/dense/README.md", "op"), names,
              "the table of worker/dense/README.md");
}

// The table is put together of files that do not know of each other.
TEST(Lists, NoTwoOpsHaveOneName) {
  Names names;
  for (const OpEntry& entry : AllOps()) {
    for (const std::string name : {entry.name, entry.alias}) {
      EXPECT_TRUE(names.insert(name).second) << "two ops are named " << name;
    }
  }
}

TEST(Lists, HaveEveryActivation) {
  const std::string file = "worker/zoo/README.md";
  ExpectThese(WordsOf(Between(TextOf(file), "| MLP: activation | relu | ", " |")), ActivationOps(),
              "the line of `MLP: activation` in " + file);
}

TEST(Lists, HaveEveryModel) {
  const std::vector<std::string> names = ZooModelNames();
  ExpectThese(FirstCells("worker/zoo/README.md", "model"), names,
              "the table of worker/zoo/README.md");
  Names of_jobs;
  for (const OnnxCase& job : JobCases()) of_jobs.insert(job.spec.model().name());
  ExpectAll(of_jobs, names, "deploy/jobs");
}

TEST(Lists, HaveEveryOptimizer) {
  const std::vector<std::string> kinds = KindsOfOptimizers();
  ExpectAll(WordsOf(Between(TextOf("deploy/jobs/README.md"), "A table's optimizer is one of ",
                            ", with L2")),
            kinds, "deploy/jobs/README.md");
}

}  // namespace
}  // namespace tessera::worker::testing
