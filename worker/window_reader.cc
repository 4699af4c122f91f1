#include "worker/window_reader.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/no_thread.h"
#include "common/status_macros.h"

namespace tessera::worker {
namespace {

std::string KeyOf(const std::vector<v1::RecordRange>& ranges) {
  std::string key;
  for (const v1::RecordRange& range : ranges) {
    absl::StrAppend(&key, range.path(), ":", range.begin(), "-", range.end(), "\n");
  }
  return key;
}

}  // namespace

WindowReader::~WindowReader() {
  if (ahead_.valid()) ahead_.wait();
}

const DataSource::Records* WindowReader::Held(const std::vector<v1::RecordRange>& ranges) const {
  return current_ != nullptr && KeyOf(ranges) == current_key_ ? current_.get() : nullptr;
}

absl::StatusOr<const DataSource::Records*> WindowReader::Get(
    const std::vector<v1::RecordRange>& ranges) {
  std::string key = KeyOf(ranges);
  if (current_ != nullptr && key == current_key_) return current_.get();
  Free();  // before another window is read
  Result result = absl::UnknownError("not read");
  if (ahead_.valid() && key == ahead_key_) {
    result = ahead_.get();
  } else {
    // Else three windows would be in memory.
    if (ahead_.valid()) ahead_ = {};
    if (freeing_.valid()) freeing_.wait();
    result = source_->Read(ranges);
  }
  TESSERA_RETURN_IF_ERROR(result.status());
  current_ = std::make_unique<DataSource::Records>(*std::move(result));
  current_key_ = std::move(key);
  return current_.get();
}

void WindowReader::Free() {
  if (current_ == nullptr) return;
  if (freeing_.valid()) freeing_.wait();
  try {
    freeing_ =
        std::async(std::launch::async, [old = std::move(current_)]() mutable { old.reset(); });
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    current_.reset();
  }
}

void WindowReader::ReadAhead(std::vector<v1::RecordRange> ranges) {
  std::string key = KeyOf(ranges);
  if (ranges.empty() || key == current_key_ || (ahead_.valid() && key == ahead_key_)) return;
  if (ahead_.valid()) ahead_.wait();
  ahead_key_ = std::move(key);
  try {
    ahead_ = std::async(std::launch::async, [source = source_, ranges = std::move(ranges),
                                             freeing = std::move(freeing_)] {
      if (freeing.valid()) freeing.wait();  // else three windows would be in memory
      return source->Read(ranges);
    });
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    ahead_ = {};  // Get reads it
  }
}

}  // namespace tessera::worker
