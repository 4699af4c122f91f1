#include "worker/data/data_source.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "worker/data/glob.h"
#include "worker/data/unpack.h"

namespace tessera::worker {
namespace {

void FreeSpareMemory(ParsedRecords* records) {
  records->batch.labels.shrink_to_fit();
  records->batch.weights.shrink_to_fit();
  records->batch.dense.shrink_to_fit();
  for (SparseColumn& column : records->batch.sparse) {
    column.offsets.shrink_to_fit();
    column.keys.shrink_to_fit();
    column.weights.shrink_to_fit();
  }
}

// The number of ids in the column that has most.
uint64_t MostIds(const Batch& batch) {
  uint64_t most = 0;
  for (const SparseColumn& column : batch.sparse) {
    most = std::max<uint64_t>(most, column.keys.size());
  }
  return most;
}

// The number of bad records before `record`.
size_t BadBefore(const std::vector<BadRecord>& bad, uint64_t record) {
  const auto it =
      std::lower_bound(bad.begin(), bad.end(), record,
                       [](const BadRecord& b, uint64_t wanted) { return b.record < wanted; });
  return static_cast<size_t>(it - bad.begin());
}

}  // namespace

DataSource::DataSource(Schema schema, Options options, FileSystem& fs)
    : schema_(std::move(schema)),
      options_(std::move(options)),
      fs_(fs),
      cache_(options_.cache_bytes) {}

absl::StatusOr<std::unique_ptr<DataSource>> DataSource::Open(const v1::DataSpec& spec,
                                                             Options options, FileSystem& fs) {
  TESSERA_ASSIGN_OR_RETURN(Schema schema, Schema::Resolve(spec, options.labels));
  schema.labels_optional = options.labels_optional;
  return std::unique_ptr<DataSource>(new DataSource(std::move(schema), std::move(options), fs));
}

absl::StatusOr<std::vector<v1::FileRecords>> DataSource::Count(
    const std::vector<std::string>& patterns) {
  std::set<std::string> distinct;
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> matches,
                             ExpandPattern(fs_, options_.data_root, pattern));
    for (const std::string& match : matches) {
      if (distinct.insert(match).second) paths.push_back(match);
    }
  }
  TESSERA_RETURN_IF_ERROR(RefusePackedTwins(options_.data_root, distinct));
  if (!options_.order_of_patterns) std::sort(paths.begin(), paths.end());
  std::vector<v1::FileRecords> counted;
  for (const std::string& path : paths) {
    if (!IsUtf8(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name of the file \"", absl::CHexEscape(path), "\" below the data root ",
                       options_.data_root, " is not UTF-8; rename it"));
    }
    TESSERA_ASSIGN_OR_RETURN(const OpenFile file, GetFile(path, /*fresh=*/true));
    v1::FileRecords& records = counted.emplace_back();
    records.set_path(path);
    records.set_records(file.reader->Count());
    records.set_bytes(file.reader->FileBytes());
  }
  return counted;
}

absl::StatusOr<DataSource::OpenFile> DataSource::GetFile(const std::string& path, bool fresh) {
  TESSERA_ASSIGN_OR_RETURN(const std::string full, PathBelow(options_.data_root, path));
  OpenFile file;
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = files_.find(path); it != files_.end()) file = it->second;
  }
  if (file.reader != nullptr) {
    if (!fresh) return file;
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> now, fs_.Open(full));
    if (now->Size() == file.reader->FileBytes()) return file;
  }
  {
    absl::MutexLock lock(&mu_);
    file.number = next_number_++;
  }
  if (IsPacked(full)) TESSERA_RETURN_IF_ERROR(fs_.CreateFolder(options_.scratch_folder));
  // A name that differs among processes and sources, which may share the folder.
  const std::string scratch =
      absl::StrCat(options_.scratch_folder, "/unpack-", ::getpid(), "-",
                   absl::Hex(reinterpret_cast<uintptr_t>(this)), "-", file.number);
  TESSERA_ASSIGN_OR_RETURN(file.reader, OpenTextReader(fs_, schema_, {full, path, scratch}));
  absl::MutexLock lock(&mu_);
  files_[path] = file;
  return file;
}

absl::StatusOr<DataSource::OpenFile> DataSource::GetFileOfSize(const v1::RecordRange& range) {
  TESSERA_ASSIGN_OR_RETURN(OpenFile file, GetFile(range.path(), /*fresh=*/false));
  if (file.reader->FileBytes() != range.file_bytes()) {
    // The file may have been replaced since it was opened here, and counted by another worker.
    TESSERA_ASSIGN_OR_RETURN(file, GetFile(range.path(), /*fresh=*/true));
  }
  TESSERA_RETURN_IF_ERROR(
      CheckFileBytes(range.path(), file.reader->FileBytes(), range.file_bytes()));
  if (range.begin() > range.end() || range.end() > file.reader->Count()) {
    return absl::FailedPreconditionError(
        absl::StrCat(range.path(), ": records [", range.begin(), ", ", range.end(),
                     ") were asked for, the file has ", file.reader->Count()));
  }
  return file;
}

absl::StatusOr<BlockCache::Block> DataSource::GetBlock(const OpenFile& file, uint64_t block) {
  const BlockCache::Key key = {file.number, block};
  if (BlockCache::Block cached = cache_.Find(key)) return cached;
  const uint64_t begin = block * kBlockRecords;
  const uint64_t end = std::min(begin + kBlockRecords, file.reader->Count());
  TESSERA_ASSIGN_OR_RETURN(ParsedRecords parsed, file.reader->Read(begin, end));
  FreeSpareMemory(&parsed);
  auto shared = std::make_shared<const ParsedRecords>(std::move(parsed));
  cache_.Insert(key, shared);
  return shared;
}

absl::StatusOr<std::vector<BlockCache::Block>> DataSource::GetBlocks(const OpenFile& file,
                                                                     uint64_t begin, uint64_t end) {
  std::vector<absl::StatusOr<BlockCache::Block>> read(end - begin, absl::UnknownError("not read"));
  const auto read_one = [&](size_t i) { read[i] = GetBlock(file, begin + i); };
  if (options_.pool != nullptr && read.size() > 1) {
    options_.pool->RunAll(read.size(), read_one);
  } else {
    for (size_t i = 0; i < read.size(); ++i) read_one(i);
  }
  std::vector<BlockCache::Block> blocks;
  for (absl::StatusOr<BlockCache::Block>& one : read) {
    TESSERA_RETURN_IF_ERROR(one.status());
    blocks.push_back(*std::move(one));
  }
  return blocks;
}

absl::Status DataSource::AppendRange(const v1::RecordRange& range, uint64_t rows, Records* out) {
  TESSERA_ASSIGN_OR_RETURN(const OpenFile file, GetFileOfSize(range));
  // Blocks per thread that are in memory beside `out`.
  constexpr uint64_t kBlocksAtOnce = 4;
  const uint64_t threads = options_.pool == nullptr ? 0 : uint64_t(options_.pool->threads());
  const uint64_t at_once = threads == 0 ? 1 : kBlocksAtOnce * (threads + 1);
  const uint64_t end_block = (range.end() + kBlockRecords - 1) / kBlockRecords;
  std::vector<BlockCache::Block> blocks;
  uint64_t first_block = 0;  // the number of blocks[0]
  for (uint64_t record = range.begin(); record < range.end();) {
    const uint64_t block = record / kBlockRecords;
    if (block >= first_block + blocks.size()) {
      first_block = block;
      TESSERA_ASSIGN_OR_RETURN(blocks,
                               GetBlocks(file, block, std::min(block + at_once, end_block)));
    }
    const ParsedRecords& records = *blocks[block - first_block];
    const uint64_t stop = std::min(range.end(), (block + 1) * kBlockRecords);
    if (MostIds(out->batch) + MostIds(records.batch) > std::numeric_limits<uint32_t>::max()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          range.path(), ": records up to ", stop, " of a window have more than 2^32 ids in a ",
          "column; make data.shuffle_window_records smaller"));
    }
    if (out->batch.size == 0) ReserveRows(records.batch, rows, &out->batch);
    const size_t bad_before = BadBefore(records.bad, record);
    const size_t bad_until = BadBefore(records.bad, stop);
    const uint32_t rows_before = out->batch.size;
    for (size_t bad = bad_before; bad < bad_until; ++bad) {
      const uint64_t good = records.bad[bad].record - record - (bad - bad_before);
      out->rows_before_bad.push_back(rows_before + static_cast<uint32_t>(good));
    }
    AppendRows(records.batch, static_cast<uint32_t>(record - block * kBlockRecords - bad_before),
               static_cast<uint32_t>(stop - block * kBlockRecords - bad_until), &out->batch);
    if (bad_until > bad_before && out->bad_records == 0) {
      out->first_bad = records.bad[bad_before].message;
    }
    out->bad_records += bad_until - bad_before;
    record = stop;
  }
  return absl::OkStatus();
}

absl::StatusOr<DataSource::Records> DataSource::Read(absl::Span<const v1::RecordRange> ranges) {
  Records records;
  ClearBatch(schema_.sparse.size(), &records.batch);
  uint64_t rows = 0;
  for (const v1::RecordRange& range : ranges) rows += range.end() - range.begin();
  for (const v1::RecordRange& range : ranges) {
    TESSERA_RETURN_IF_ERROR(AppendRange(range, rows, &records));
  }
  FindOneEach(&records.batch);
  return records;
}

}  // namespace tessera::worker
