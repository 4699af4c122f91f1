#include "common/wire/bulk_reader.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/wire/varint.h"

namespace tessera::wire {
namespace {

absl::Status Malformed(absl::string_view what, uint64_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat("the message is malformed at byte ", offset, ": ", what));
}

}  // namespace

// Walks over the slices as if they were one string.
class BulkReader::Cursor {
 public:
  explicit Cursor(const BulkReader& reader) : reader_(reader) {}

  uint64_t offset() const { return offset_; }

  absl::StatusOr<uint64_t> Varint(uint64_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (offset_ >= end) return Malformed("a number is cut off", offset_);
      const uint8_t byte = Next();
      value |= uint64_t{byte & 0x7fu} << std::min(shift, 63);
      if (byte < 0x80) return value;
    }
    return Malformed("a number of more than ten bytes", offset_);
  }
  // A field's tag: 32 bits, as in protobuf.
  absl::StatusOr<uint64_t> Tag(uint64_t end) {
    const uint64_t begin = offset_;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t tag, Varint(end));
    if (tag <= UINT32_MAX) return tag;
    return Malformed(absl::StrCat("field tag ", tag), begin);
  }
  // The length of a field, checked to lie before `end`.
  absl::StatusOr<uint64_t> Length(uint64_t end) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t length, Varint(end));
    if (length <= end - offset_) return length;
    return Malformed(
        absl::StrCat("a field of ", length, " bytes, where ", end - offset_, " are left"), offset_);
  }
  void Skip(uint64_t n) {
    offset_ += n;
    while (slice_ < reader_.ends_.size() && reader_.ends_[slice_] <= offset_) ++slice_;
  }
  // The end of the value of a field whose tag has been read.
  absl::StatusOr<uint64_t> EndOfValue(uint32_t type, uint64_t end) {
    if (type == kVarint) {
      TESSERA_RETURN_IF_ERROR(Varint(end).status());
      return offset_;
    }
    uint64_t size = type == kFixed64 ? 8 : 4;
    if (type == kBytes) {
      TESSERA_ASSIGN_OR_RETURN(size, Length(end));
    } else if (type != kFixed64 && type != kFixed32) {
      return Malformed(absl::StrCat("wire type ", type), offset_);
    }
    if (size > end - offset_) return Malformed("a field is cut off", offset_);
    Skip(size);
    return offset_;
  }

 private:
  uint8_t Next() {
    const grpc::Slice& slice = reader_.slices_[slice_];
    const uint8_t byte = slice.begin()[slice.size() - (reader_.ends_[slice_] - offset_)];
    Skip(1);
    return byte;
  }

  const BulkReader& reader_;
  uint64_t offset_ = 0;
  size_t slice_ = 0;  // the slice that holds offset_
};

absl::StatusOr<BulkReader> BulkReader::Read(const grpc::ByteBuffer& message,
                                            const BulkLayout& layout,
                                            google::protobuf::MessageLite* rest) {
  BulkReader reader;
  if (message.Valid() && !message.Dump(&reader.slices_).ok()) {
    return absl::InvalidArgumentError("the message's bytes cannot be read");
  }
  uint64_t size = 0;
  for (const grpc::Slice& slice : reader.slices_) reader.ends_.push_back(size += slice.size());
  Cursor cursor(reader);
  cursor.Skip(0);
  std::string rest_bytes;
  const auto append = [&reader](uint64_t begin, uint64_t end, std::string* out) {
    const size_t old = out->size();
    out->resize(old + (end - begin));
    reader.CopyOut({.offset = begin, .size = end - begin}, out->data() + old);
  };
  while (cursor.offset() < size) {
    const uint64_t begin = cursor.offset();
    TESSERA_ASSIGN_OR_RETURN(const uint64_t tag, cursor.Tag(size));
    if (tag != (uint64_t(layout.blocks) << 3 | kBytes)) {
      TESSERA_ASSIGN_OR_RETURN(const uint64_t end, cursor.EndOfValue(tag & 7, size));
      append(begin, end, &rest_bytes);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const uint64_t length, cursor.Length(size));
    const uint64_t block_end = cursor.offset() + length;
    if (reader.blocks_.size() == kMaxBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("the message has more than ", kMaxBlocks, " blocks"));
    }
    std::array<Extent, kMaxBulks>& block = reader.blocks_.emplace_back();
    std::string rest_of_block;
    while (cursor.offset() < block_end) {
      const uint64_t field_begin = cursor.offset();
      TESSERA_ASSIGN_OR_RETURN(const uint64_t field, cursor.Tag(block_end));
      size_t bulk = 0;
      while (bulk < kMaxBulks &&
             (layout.bulks[bulk] == 0 || field >> 3 != uint64_t(layout.bulks[bulk]))) {
        ++bulk;
      }
      if (bulk == kMaxBulks) {
        TESSERA_ASSIGN_OR_RETURN(const uint64_t end, cursor.EndOfValue(field & 7, block_end));
        append(field_begin, end, &rest_of_block);
        continue;
      }
      if ((field & 7) != kBytes) return Malformed("a block that is not bytes", field_begin);
      TESSERA_ASSIGN_OR_RETURN(const uint64_t bytes, cursor.Length(block_end));
      block[bulk] = {.offset = cursor.offset(), .size = bytes};  // if repeated, the last one counts
      cursor.Skip(bytes);
    }
    AppendVarint(tag, &rest_bytes);
    AppendVarint(rest_of_block.size(), &rest_bytes);
    rest_bytes += rest_of_block;
  }
  if (!rest->ParseFromString(rest_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message is not a ", rest->GetTypeName(), ": its fields cannot be read"));
  }
  return reader;
}

void BulkReader::Copy(size_t block, size_t bulk, void* to) const {
  CopyOut(blocks_[block][bulk], to);
}

void BulkReader::CopyOut(Extent extent, void* to) const {
  char* out = static_cast<char*>(to);
  size_t s = std::upper_bound(ends_.begin(), ends_.end(), extent.offset) - ends_.begin();
  for (uint64_t left = extent.size, at = extent.offset; left > 0; ++s) {
    const grpc::Slice& slice = slices_[s];
    const uint64_t skip = slice.size() - (ends_[s] - at);
    const uint64_t n = std::min<uint64_t>(left, slice.size() - skip);
    std::memcpy(out, slice.begin() + skip, n);
    out += n;
    at += n;
    left -= n;
  }
}

}  // namespace tessera::wire
