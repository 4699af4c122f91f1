#include "client/data_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/checksum.h"
#include "common/math/metrics/binary_metrics.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::client {
namespace {

constexpr char kTruthFile[] = "truth.json";
constexpr char kGenerator[] = "tessera data generate";
constexpr size_t kBlockBytes = 1 << 20;
constexpr uint64_t kProgressEvery = 10000;

absl::StatusOr<std::string> ChecksumOfFile(FileSystem& fs, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, fs.Open(path));
  Checksum64 checksum;
  std::string block(kBlockBytes, '\0');
  for (uint64_t at = 0; at < file->Size(); at += kBlockBytes) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(kBlockBytes, file->Size() - at));
    TESSERA_RETURN_IF_ERROR(file->Read(at, absl::MakeSpan(block).subspan(0, n)));
    checksum.Add(absl::string_view(block).substr(0, n));
  }
  return ChecksumText(checksum.Value());
}

absl::Status CheckOptions(const ClickDataOptions& options) {
  constexpr uint64_t kMostIds = 100'000'000;
  for (const uint64_t samples : {options.train, options.validation, options.test}) {
    if (samples == 0 || samples > kMostSamples) {
      return absl::InvalidArgumentError(
          absl::StrCat("a split of ", samples, " samples; expected 1 .. ", kMostSamples));
    }
  }
  const std::vector<uint32_t>& vocabulary = options.model.vocabulary;
  if (vocabulary.empty() || vocabulary.size() > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat(vocabulary.size(), " sparse fields; expected 1 .. 1000"));
  }
  for (const uint32_t size : vocabulary) {
    if (size < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("a vocabulary of ", size, " ids; expected at least 2"));
    }
  }
  if (std::accumulate(vocabulary.begin(), vocabulary.end(), uint64_t{0}) > kMostIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabularies of more than ", kMostIds, " ids in all"));
  }
  if (options.model.dense > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.model.dense, " dense columns; expected 0 .. 1000"));
  }
  if (!(options.model.zipf >= 0 && options.model.zipf <= 10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("zipf ", options.model.zipf, "; expected 0 .. 10"));
  }
  if (options.folder.empty()) return absl::InvalidArgumentError("no folder to write to");
  return absl::OkStatus();
}

// The files that truth.json says an earlier run wrote: name -> checksum.
absl::flat_hash_map<std::string, std::string> WrittenBefore(FileSystem& fs,
                                                            const std::string& folder) {
  absl::flat_hash_map<std::string, std::string> written;
  const auto text = ReadWholeFile(fs, absl::StrCat(folder, "/", kTruthFile));
  if (!text.ok()) return written;
  const auto truth = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!truth.is_object() || truth.value("generator", nlohmann::json()) != kGenerator) {
    return written;
  }
  written[kTruthFile] = "";
  const auto splits = truth.find("splits");
  if (splits == truth.end() || !splits->is_object()) return written;
  for (const auto& split : *splits) {
    if (!split.is_object()) continue;
    const auto file = split.find("file");
    const auto checksum = split.find("checksum");
    if (file != split.end() && file->is_string() && checksum != split.end() &&
        checksum->is_string()) {
      written[file->get<std::string>()] = checksum->get<std::string>();
    }
  }
  return written;
}

absl::Status CheckNothingIsLost(FileSystem& fs, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  const auto written = WrittenBefore(fs, folder);
  for (const char* name : {kTruthFile, "train.csv", "validation.csv", "test.csv"}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const std::string path = absl::StrCat(folder, "/", name);
    const auto it = written.find(name);
    if (it == written.end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": is there and was not generated; choose another folder, or say --force"));
    }
    if (it->second.empty()) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::string checksum, ChecksumOfFile(fs, path));
    if (checksum != it->second) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": was changed since it was generated; choose another folder, or say --force"));
    }
  }
  return absl::OkStatus();
}

std::string Header(const ClickModelOptions& model) {
  std::string header = "label";
  for (uint32_t k = 0; k < model.dense; ++k) absl::StrAppend(&header, ",d", k);
  for (size_t f = 0; f < model.vocabulary.size(); ++f) absl::StrAppend(&header, ",c", f);
  return header + "\n";
}

void AppendSample(const ClickModel::Sample& sample, std::string* text) {
  text->push_back(sample.clicked ? '1' : '0');
  for (const double x : sample.dense) absl::StrAppendFormat(text, ",%.4f", x);
  for (const uint32_t id : sample.ids) absl::StrAppend(text, ",", id);
  text->push_back('\n');
}

// Writes one split to its temporary file and measures it.
class SplitWriter {
 public:
  SplitWriter(FileSystem& fs, const ClickDataOptions& options, const ClickModel& model)
      : fs_(fs), options_(options), model_(model) {}

  // `number` names the split in the random streams. `done` counts samples over all splits.
  absl::Status Write(uint64_t number, ClickSplit* split, uint64_t* done,
                     const std::function<void(uint64_t)>& progress) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                             fs_.Create(TemporaryPath(*split)));
    Checksum64 checksum;
    std::string text = Header(options_.model);
    std::vector<float> logits, labels;
    ClickModel::Sample sample;
    for (uint64_t i = 0; i < split->samples; ++i) {
      model_.Draw(number, i, &sample);
      AppendSample(sample, &text);
      logits.push_back(static_cast<float>(sample.logit));
      labels.push_back(sample.clicked ? 1.0f : 0.0f);
      split->clicks += sample.clicked ? 1 : 0;
      if (text.size() >= kBlockBytes || i + 1 == split->samples) {
        checksum.Add(text);
        TESSERA_RETURN_IF_ERROR(file->Append(text));
        text.clear();
      }
      if (++*done % kProgressEvery == 0) progress(*done);
    }
    TESSERA_RETURN_IF_ERROR(file->Close());
    const math::BinaryMetrics best = math::ComputeBinaryMetrics(logits, labels);
    split->best_auc = best.auc;
    split->best_logloss = best.logloss;
    checksum_ = ChecksumText(checksum.Value());
    return absl::OkStatus();
  }

  static std::string TemporaryPath(const ClickSplit& split) { return split.path + ".tmp"; }
  const std::string& checksum() const { return checksum_; }  // of the last file

 private:
  FileSystem& fs_;
  const ClickDataOptions& options_;
  const ClickModel& model_;
  std::string checksum_;
};

nlohmann::ordered_json NumberOrNull(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string Truth(const ClickDataOptions& options, const std::vector<ClickSplit>& splits,
                  const std::vector<std::string>& checksums) {
  nlohmann::ordered_json truth;
  truth["generator"] = kGenerator;
  truth["seed"] = options.model.seed;
  truth["vocabulary"] = options.model.vocabulary;
  truth["zipf"] = options.model.zipf;
  truth["dense"] = options.model.dense;
  for (size_t s = 0; s < splits.size(); ++s) {
    nlohmann::ordered_json& split = truth["splits"][splits[s].name];
    split["file"] = splits[s].name + ".csv";
    split["samples"] = splits[s].samples;
    split["clicks"] = splits[s].clicks;
    split["best_auc"] = NumberOrNull(splits[s].best_auc);
    split["best_logloss"] = NumberOrNull(splits[s].best_logloss);
    split["checksum"] = checksums[s];
  }
  return truth.dump(2) + "\n";
}

}  // namespace

absl::StatusOr<std::vector<ClickSplit>> GenerateClickData(const ClickDataOptions& options,
                                                          FileSystem& fs,
                                                          const GeneratorProgress& progress) {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(options.folder));
  if (!options.force) TESSERA_RETURN_IF_ERROR(CheckNothingIsLost(fs, options.folder));

  const ClickModel model(options.model);
  std::vector<ClickSplit> splits(3);
  const std::pair<const char*, uint64_t> wanted[] = {
      {"train", options.train}, {"validation", options.validation}, {"test", options.test}};
  const uint64_t total = options.train + options.validation + options.test;
  uint64_t done = 0;
  std::vector<std::string> checksums;
  const absl::Status status = [&]() -> absl::Status {
    for (size_t s = 0; s < splits.size(); ++s) {
      splits[s].name = wanted[s].first;
      splits[s].samples = wanted[s].second;
      splits[s].path = absl::StrCat(options.folder, "/", splits[s].name, ".csv");
      SplitWriter writer(fs, options, model);
      TESSERA_RETURN_IF_ERROR(writer.Write(s, &splits[s], &done, [&](uint64_t n) {
        if (progress) progress(n, total);
      }));
      checksums.push_back(writer.checksum());
    }
    // In this order, so that after an interruption each file is as truth.json says or is missing:
    // the generator still knows its own files.
    for (const ClickSplit& split : splits) TESSERA_RETURN_IF_ERROR(fs.Remove(split.path));
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(fs, absl::StrCat(options.folder, "/", kTruthFile),
                                                Truth(options, splits, checksums)));
    for (const ClickSplit& split : splits) {
      TESSERA_RETURN_IF_ERROR(fs.Rename(SplitWriter::TemporaryPath(split), split.path));
    }
    return absl::OkStatus();
  }();
  if (!status.ok()) {
    for (const ClickSplit& split : splits) {
      if (!split.path.empty()) fs.Remove(SplitWriter::TemporaryPath(split)).IgnoreError();
    }
    return status;
  }
  return splits;
}

}  // namespace tessera::client
