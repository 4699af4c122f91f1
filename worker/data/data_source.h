#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "common/task_pool.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/work.pb.h"
#include "worker/data/block_cache.h"
#include "worker/data/reader.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// The data of a job, as ranges of records in files below the worker's data root. Opens a file when
// it is first needed and keeps its index. Thread-safe.
class DataSource {
 public:
  // Records per block, the unit of parsing and caching.
  static constexpr uint64_t kBlockRecords = 1024;
  static constexpr uint64_t kDefaultCacheBytes = uint64_t{1} << 30;

  struct Options {
    std::string data_root;
    // Packed files are unpacked here, into files without a name: nothing stays behind. Created when
    // needed.
    std::string scratch_folder;
    // Allowed values of the LABEL columns, in order; columns that are left out take 0 or 1.
    std::vector<LabelForm> labels = {};
    bool labels_optional = false;    // see Schema
    bool order_of_patterns = false;  // see Count
    // Most memory for parsed records, which are kept for later epochs.
    uint64_t cache_bytes = kDefaultCacheBytes;
    // Shares the parsing of a Read; null: the caller parses alone. Borrowed, outlives the source.
    TaskPool* pool = nullptr;
  };

  // INVALID_ARGUMENT: the spec is wrong. `fs` is borrowed and outlives the source.
  static absl::StatusOr<std::unique_ptr<DataSource>> Open(const v1::DataSpec& spec, Options options,
                                                          FileSystem& fs);

  const Schema& schema() const { return schema_; }

  // The files that the patterns (ExpandPattern) match, each once, with their numbers of records.
  // They are sorted; with order_of_patterns the files of an earlier pattern come first. Every
  // pattern must match. INVALID_ARGUMENT: two forms of a file (plain, .gz, .zst) are there.
  absl::StatusOr<std::vector<v1::FileRecords>> Count(const std::vector<std::string>& patterns);

  struct Records {
    Batch batch;
    uint64_t bad_records = 0;
    std::string first_bad;  // "file:line: what is wrong"; empty: none
    // For each bad record, in order: how many rows of `batch` come before it.
    std::vector<uint32_t> rows_before_bad;
  };
  // The records of the ranges, one range after another; bad records are left out and counted.
  // FAILED_PRECONDITION: a file's size is not the range's file_bytes; RESOURCE_EXHAUSTED: a column
  // has more than 2^32-1 ids.
  absl::StatusOr<Records> Read(absl::Span<const v1::RecordRange> ranges);

 private:
  struct OpenFile {
    uint64_t number = 0;                   // differs for every opening; BlockCache::Key has it
    std::shared_ptr<const Reader> reader;  // shared by the map and the calls that read
  };

  DataSource(Schema schema, Options options, FileSystem& fs);

  // The file, opened now unless it is open already. With `fresh` an open file is opened again if
  // its size has changed on disk.
  absl::StatusOr<OpenFile> GetFile(const std::string& path, bool fresh);
  absl::StatusOr<OpenFile> GetFileOfSize(const v1::RecordRange& range);
  absl::StatusOr<BlockCache::Block> GetBlock(const OpenFile& file, uint64_t block);
  // Appends the range's records to `out`, which will have about `rows` rows in the end.
  absl::Status AppendRange(const v1::RecordRange& range, uint64_t rows, Records* out);
  // Blocks [begin, end) of the file, parsed in parallel.
  absl::StatusOr<std::vector<BlockCache::Block>> GetBlocks(const OpenFile& file, uint64_t begin,
                                                           uint64_t end);

  const Schema schema_;
  const Options options_;
  FileSystem& fs_;

  BlockCache cache_;

  absl::Mutex mu_;
  std::map<std::string, OpenFile> files_ ABSL_GUARDED_BY(mu_);
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::worker
