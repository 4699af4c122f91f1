#include "ps/cold/rocksdb_options.h"

#include "rocksdb/filter_policy.h"
#include "rocksdb/table.h"

namespace tessera::ps {
namespace {

// The device's own unit.
constexpr size_t kBlockBytes = 4096;
constexpr double kFilterBits = 10;

// Discards the log: the folder is gone before anybody could read it.
class NoLog final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace

rocksdb::Options ColdOptions(rocksdb::Env* env, bool page_cache) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.info_log = std::make_shared<NoLog>();
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.max_open_files = -1;
  options.use_direct_reads = !page_cache;
  options.max_background_jobs = 2;
  // For each file that a compaction reads; there may be dozens.
  options.compaction_readahead_size = 256 << 10;
  // Few records go through a write buffer, most come in files: it must not take 1 MiB for the
  // first.
  options.arena_block_size = 32 << 10;
  options.compression = rocksdb::kNoCompression;
  // The default would take 4 MiB of the disk for a few KB.
  options.manifest_preallocation_size = 64 << 10;

  // Few rewrites, at the price of several sorted runs: each has a filter in memory, so that a read
  // still goes to the disk once. With 8 in place of 12 a table of small batches wrote half as much
  // again (tests/bench, tier: three runs each); 16 were no better.
  options.compaction_style = rocksdb::kCompactionStyleUniversal;
  options.level0_file_num_compaction_trigger = 12;
  options.compaction_options_universal.max_size_amplification_percent = 100;
  // Ingested files are not stalled by these; ColdStore waits itself.
  options.level0_slowdown_writes_trigger = 64;
  options.level0_stop_writes_trigger = 128;
  // The last run needs none: a key that is asked for is there.
  options.optimize_filters_for_hits = true;

  rocksdb::BlockBasedTableOptions table;
  table.block_size = kBlockBytes;
  // One read of one page a block.
  table.block_align = true;
  table.no_block_cache = true;
  // Most readahead of a scan, which begins with a few pages: a partition may have few rows in each
  // of many files.
  table.max_auto_readahead_size = 1 << 20;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBits));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace tessera::ps
