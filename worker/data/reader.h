#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "worker/data/batch.h"
#include "worker/data/schema.h"

namespace tessera::worker {

// A record that could not be parsed.
struct BadRecord {
  uint64_t record = 0;  // its place in the file, from 0
  std::string message;  // "file:line: ..."
};

// What became of some records of a file: rows of the good ones in file order, and the bad ones in
// file order.
struct ParsedRecords {
  Batch batch;
  std::vector<BadRecord> bad;
};

// One file of records: any source that can count its records and read a range of them can be leased
// in pieces. Thread-safe; immutable.
class Reader {
 public:
  virtual ~Reader() = default;
  // Good and bad ones.
  virtual uint64_t Count() const = 0;
  // Bytes of the file on disk when it was opened.
  virtual uint64_t FileBytes() const = 0;
  // Records [begin, end), end <= Count(). Bad records are not errors. FAILED_PRECONDITION: the file
  // has changed since it was opened.
  virtual absl::StatusOr<ParsedRecords> Read(uint64_t begin, uint64_t end) const = 0;
};

struct TextFile {
  std::string path;     // of the file
  std::string name;     // in messages
  std::string scratch;  // a packed file is unpacked into a temporary file of this name
};

// A CSV, TSV or LIBSVM file. Opening it unpacks it where it is packed, reads its header and scans
// it once for its records. `fs` and `schema` are borrowed and outlive the reader.
//   INVALID_ARGUMENT  no text file, a wrong header, no records, a damaged archive: with file and
//   line
absl::StatusOr<std::unique_ptr<Reader>> OpenTextReader(FileSystem& fs, const Schema& schema,
                                                       const TextFile& file);

// FAILED_PRECONDITION: the file `name` has another size now than when its records were counted.
absl::Status CheckFileBytes(const std::string& name, uint64_t bytes, uint64_t counted_bytes);

}  // namespace tessera::worker
