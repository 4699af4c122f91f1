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

// Some records of a file, parsed: rows of the good ones and the bad ones, each in file order.
struct ParsedRecords {
  Batch batch;
  std::vector<BadRecord> bad;
};

// One file of records. A source needs only to count its records and to read a range of them: then
// it can be leased in pieces. Thread-safe; immutable.
class Reader {
 public:
  virtual ~Reader() = default;
  // The number of records, good and bad.
  virtual uint64_t Count() const = 0;
  // The file's size in bytes on disk when it was opened.
  virtual uint64_t FileBytes() const = 0;
  // Records [begin, end), end <= Count(). Bad records are not errors. FAILED_PRECONDITION: the file
  // has changed since it was opened.
  virtual absl::StatusOr<ParsedRecords> Read(uint64_t begin, uint64_t end) const = 0;
};

struct TextFile {
  std::string path;
  std::string name;     // for messages
  std::string scratch;  // path of the temporary file that a packed file is unpacked into
};

// Opens a CSV, TSV or LIBSVM file: unpacks it if it is packed, reads its header and scans it once
// for its records. `fs` and `schema` are borrowed and outlive the reader.
//   INVALID_ARGUMENT  not a text file, a wrong header, no records or a damaged archive; names file
//                     and line
absl::StatusOr<std::unique_ptr<Reader>> OpenTextReader(FileSystem& fs, const Schema& schema,
                                                       const TextFile& file);

// FAILED_PRECONDITION: the size of file `name` has changed since its records were counted.
absl::Status CheckFileBytes(const std::string& name, uint64_t bytes, uint64_t counted_bytes);

}  // namespace tessera::worker
