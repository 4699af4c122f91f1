#include "common/wire/bulk_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/wire/varint.h"

namespace tessera::wire {
namespace {

uint64_t Tag(int field) { return uint64_t(field) << 3 | kBytes; }

}  // namespace

BulkWriter::BulkWriter(const BulkLayout& layout, const google::protobuf::MessageLite& message)
    : layout_(layout) {
  message.AppendToString(&small_);
}

void BulkWriter::Start(const google::protobuf::MessageLite& block, uint64_t bulk_bytes) {
  AppendVarint(Tag(layout_.blocks), &small_);
  AppendVarint(block.ByteSizeLong() + bulk_bytes, &small_);
  block.AppendToString(&small_);
}

void BulkWriter::AppendBulkHeader(size_t bulk, uint64_t bytes) {
  AppendVarint(Tag(layout_.bulks[bulk]), &small_);
  AppendVarint(bytes, &small_);
}

void BulkWriter::Flush(absl::Span<const char> borrowed, Buffer owned) {
  const uint64_t begin = pieces_.empty() ? 0 : pieces_.back().small_end;
  pieces_.push_back({.small_begin = begin,
                     .small_end = small_.size(),
                     .borrowed = borrowed,
                     .owned = std::move(owned)});
}

void BulkWriter::AddBlock(const google::protobuf::MessageLite& block,
                          absl::Span<const absl::Span<const char>> bulks) {
  uint64_t bytes = 0;
  for (size_t b = 0; b < bulks.size(); ++b) {
    bytes += VarintSize(Tag(layout_.bulks[b])) + VarintSize(bulks[b].size()) + bulks[b].size();
  }
  Start(block, bytes);
  for (size_t b = 0; b < bulks.size(); ++b) {
    AppendBulkHeader(b, bulks[b].size());
    Flush(bulks[b], Buffer());
  }
}

void BulkWriter::AddBlock(const google::protobuf::MessageLite& block, Buffer bulk) {
  Start(block, VarintSize(Tag(layout_.bulks[0])) + VarintSize(bulk.size()) + bulk.size());
  AppendBulkHeader(0, bulk.size());
  Flush({}, std::move(bulk));
}

grpc::ByteBuffer BulkWriter::Finish() {
  Flush({}, Buffer());
  std::vector<grpc::Slice> slices;
  // One slice takes all bytes up to the next owned buffer.
  for (size_t first = 0; first < pieces_.size();) {
    size_t last = first;
    uint64_t bytes = 0;
    for (; last < pieces_.size(); ++last) {
      bytes += pieces_[last].small_end - pieces_[last].small_begin + pieces_[last].borrowed.size();
      if (pieces_[last].owned.size() > 0) break;
    }
    last = std::min(last, pieces_.size() - 1);
    if (bytes > 0) {
      grpc::Slice slice(bytes);
      auto* out = const_cast<uint8_t*>(slice.begin());  // nobody else has it until it is sent
      for (size_t p = first; p <= last; ++p) {
        const Piece& piece = pieces_[p];
        const uint64_t small = piece.small_end - piece.small_begin;
        std::memcpy(out, small_.data() + piece.small_begin, small);
        if (!piece.borrowed.empty()) {
          std::memcpy(out + small, piece.borrowed.data(), piece.borrowed.size());
        }
        out += small + piece.borrowed.size();
      }
      slices.push_back(std::move(slice));
    }
    Buffer& owned = pieces_[last].owned;
    if (const size_t size = owned.size(); size > 0) {
      slices.emplace_back(owned.Release(), size, std::free);
    }
    first = last + 1;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace tessera::wire
