#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/work.pb.h"
#include "worker/data/data_source.h"

namespace tessera::worker {

// Holds the window that is trained now, and reads the likely next one in the background. At most
// two windows are in memory. Not thread-safe.
class WindowReader {
 public:
  // `source` is borrowed and outlives the reader.
  explicit WindowReader(DataSource* source) : source_(source) {}
  // Waits for a read that is under way.
  ~WindowReader();

  // The records of `ranges`, in order, unpermuted. Valid until the next call.
  absl::StatusOr<const DataSource::Records*> Get(const std::vector<v1::RecordRange>& ranges);
  // The same records if this object holds them; else null. Reads nothing.
  const DataSource::Records* Held(const std::vector<v1::RecordRange>& ranges) const;
  // Starts reading `ranges` unless they are being read or held. Waits for another read under way.
  void ReadAhead(std::vector<v1::RecordRange> ranges);

 private:
  using Result = absl::StatusOr<DataSource::Records>;

  // Frees current_ in a thread of its own: to give gigabytes back to the system takes tenths of a
  // second.
  void Free();

  DataSource* const source_;
  std::string current_key_;
  std::unique_ptr<DataSource::Records> current_;
  std::future<void> freeing_;
  std::string ahead_key_;
  std::future<Result> ahead_;
};

}  // namespace tessera::worker
