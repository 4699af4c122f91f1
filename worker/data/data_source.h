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

// The data of a job, as ranges of records of files below the worker's data root. Opens files when
// they are first asked for and keeps what it knows of them. Thread-safe.
class DataSource {
 public:
  // Records of a block: what is parsed and cached as one.
  static constexpr uint64_t kBlockRecords = 1024;
  static constexpr uint64_t kDefaultCacheBytes = uint64_t{1} << 30;

  struct Options {
    std::string data_root;
    // Packed files are unpacked into it, into files without a name: nothing stays behind. Created
    // when it is needed.
    std::string scratch_folder;
    // Of the LABEL columns, in order; those that it leaves out are 0 or 1.
    std::vector<LabelForm> labels = {};
    bool labels_optional = false;    // see Schema
    bool order_of_patterns = false;  // see Count
    // Of parsed records, kept for later epochs.
    uint64_t cache_bytes = kDefaultCacheBytes;
    // Shares the parsing of a Read; null: its caller alone. Borrowed, outlives the source.
    TaskPool* pool = nullptr;
  };

  // INVALID_ARGUMENT: the spec is wrong. `fs` is borrowed and outlives the source.
  static absl::StatusOr<std::unique_ptr<DataSource>> Open(const v1::DataSpec& spec, Options options,
                                                          FileSystem& fs);

  const Schema& schema() const { return schema_; }

  // The files that the patterns (ExpandPattern) match, without repeats, each with its number of
  // records: sorted, or with order_of_patterns those of the first pattern before the others. Every
  // pattern must match; two forms of a file (plain, .gz, .zst) at once are INVALID_ARGUMENT.
  absl::StatusOr<std::vector<v1::FileRecords>> Count(const std::vector<std::string>& patterns);

  struct Records {
    Batch batch;
    uint64_t bad_records = 0;
    std::string first_bad;  // "file:line: what is wrong"; empty: none
    // By bad record, in order: the rows of `batch` that come before it.
    std::vector<uint32_t> rows_before_bad;
  };
  // The records of the ranges one after another, bad ones left out and counted.
  // FAILED_PRECONDITION: a file's size is not the range's file_bytes; RESOURCE_EXHAUSTED: more than
  // 2^32-1 ids.
  absl::StatusOr<Records> Read(absl::Span<const v1::RecordRange> ranges);

 private:
  struct OpenFile {
    uint64_t number = 0;                   // distinct for every opening: the cache's key
    std::shared_ptr<const Reader> reader;  // shared by the map and the calls that read from it
  };

  DataSource(Schema schema, Options options, FileSystem& fs);

  // The file as it is open, or opened now. With `fresh` what is open is used only if its size is
  // still that of the file.
  absl::StatusOr<OpenFile> GetFile(const std::string& path, bool fresh);
  absl::StatusOr<OpenFile> GetFileOfSize(const v1::RecordRange& range);
  absl::StatusOr<BlockCache::Block> GetBlock(const OpenFile& file, uint64_t block);
  // `rows`: how many `out` is to have in the end.
  absl::Status AppendRange(const v1::RecordRange& range, uint64_t rows, Records* out);
  // Blocks [begin, end) of the file, parsed at once.
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
