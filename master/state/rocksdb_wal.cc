#include "master/state/rocksdb_wal.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace tessera::master {
namespace {

// The format (RocksDB's log_format.h): blocks of kBlock bytes, in them records of checksum (4
// bytes), length (2), type (1) and payload, little-endian. A write is one FULL record, or a FIRST,
// some MIDDLE and a LAST one. What is left of a block and has no room for a header is 0.
constexpr size_t kBlock = 32768;
constexpr size_t kHeader = 7;
constexpr uint8_t kFull = 1;
constexpr uint8_t kFirst = 2;
constexpr uint8_t kLast = 4;

constexpr std::array<uint32_t, 256> Crc32cTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrc32c = Crc32cTable();

// As RocksDB stores it.
uint32_t MaskedCrc32c(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrc32c[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

struct Record {
  uint8_t type = 0;
  size_t end = 0;
};

// nullopt: no sound record begins there.
std::optional<Record> RecordAt(absl::string_view bytes, size_t at) {
  const size_t block_end = std::min(bytes.size(), (at / kBlock + 1) * kBlock);
  if (block_end - at < kHeader) return std::nullopt;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
  const Record record = {.type = byte(6), .end = at + kHeader + (byte(4) | byte(5) << 8)};
  if (record.type < kFull || record.type > kLast || record.end > block_end) return std::nullopt;
  const uint32_t crc = byte(0) | byte(1) << 8 | byte(2) << 16 | uint32_t{byte(3)} << 24;
  if (crc != MaskedCrc32c(bytes.substr(at + 6, record.end - at - 6))) return std::nullopt;
  return record;
}

}  // namespace

absl::Status CheckWal(absl::string_view name, absl::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (const size_t left = kBlock - at % kBlock; left < kHeader) {
      at += left;
      continue;
    }
    const std::optional<Record> record = RecordAt(bytes, at);
    if (!record.has_value()) break;
    at = record->end;
  }
  // Of the write that begins here there may be later parts, and it may be torn all the same.
  for (size_t later = at + 1; later < bytes.size(); ++later) {
    const std::optional<Record> record = RecordAt(bytes, later);
    if (!record.has_value() || record->type > kFirst) continue;
    return absl::DataLossError(absl::StrCat(name, ": the record at byte ", at, " of ", bytes.size(),
                                            " is damaged, and there are later ones, at byte ",
                                            later));
  }
  return absl::OkStatus();
}

}  // namespace tessera::master
