#include "tests/bench/train_data.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/bench/zipf.h"

namespace tessera::bench {
namespace {

std::string Header(const TrainData& data) {
  std::string line = "label";
  for (uint32_t d = 0; d < data.dense; ++d) absl::StrAppend(&line, ",d", d);
  for (uint32_t f = 0; f < data.fields; ++f) absl::StrAppend(&line, ",c", f);
  return line + "\n";
}

std::vector<int64_t> DrawIds(const TrainData& data) {
  std::vector<int64_t> ids(data.samples * data.fields);
  for (uint64_t f = 0; f < data.fields; ++f) {
    const uint64_t begin = f * data.rows / data.fields;
    const uint64_t end = (f + 1) * data.rows / data.fields;
    const auto draws = DrawZipf({.items = end - begin,
                                 .batches = 1,
                                 .batch = static_cast<uint32_t>(data.samples),
                                 .unique = false,
                                 .seed = f});
    for (uint64_t i = 0; i < data.samples; ++i) {
      ids[i * data.fields + f] = static_cast<int64_t>(begin + draws[0][i]);
    }
  }
  return ids;
}

template <typename T>
void Write(const std::vector<T>& values, std::ostream& out) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

absl::StatusOr<uint64_t> WriteTrainData(const TrainData& data, const std::string& csv,
                                        const std::string& raw) {
  const uint64_t label_stream = StreamKey(RandomFor::kGenerator, 1);
  const uint64_t dense_stream = StreamKey(RandomFor::kGenerator, 2);
  std::vector<float> labels(data.samples), dense(data.samples * data.dense);
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = RandomBelow(label_stream, i, 4) == 0 ? 1 : 0;
  }
  // Few digits, which text holds exactly enough.
  for (size_t i = 0; i < dense.size(); ++i) {
    dense[i] = static_cast<float>(RandomBelow(dense_stream, i, 1000)) / 1000;
  }
  const std::vector<int64_t> ids = DrawIds(data);

  std::ofstream text(csv, std::ios::binary);
  text << Header(data);
  std::string line;
  for (uint64_t i = 0; i < data.samples; ++i) {
    line = labels[i] == 1 ? "1" : "0";
    for (uint32_t d = 0; d < data.dense; ++d) {
      absl::StrAppend(&line, ",", dense[i * data.dense + d]);
    }
    for (uint32_t f = 0; f < data.fields; ++f) {
      absl::StrAppend(&line, ",", ids[i * data.fields + f]);
    }
    line += '\n';
    text << line;
  }
  std::ofstream binary(raw, std::ios::binary);
  Write(labels, binary);
  Write(dense, binary);
  Write(ids, binary);
  if (!text.flush() || !binary.flush()) {
    return absl::UnavailableError(absl::StrCat("cannot write ", csv, " and ", raw));
  }
  std::vector<bool> named(data.rows);
  for (const int64_t id : ids) named[static_cast<uint64_t>(id)] = true;
  return static_cast<uint64_t>(std::count(named.begin(), named.end(), true));
}

}  // namespace tessera::bench
