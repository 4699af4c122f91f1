#include "worker/data/unpack.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "zlib.h"
#include "zstd.h"

namespace tessera::worker {
namespace {

constexpr size_t kReadBytes = 256 << 10;

using Sink = std::function<absl::Status(absl::string_view)>;

// The bytes of a file, block by block.
class Input {
 public:
  explicit Input(const ReadableFile& file) : file_(file), buffer_(kReadBytes, '\0') {}
  // The next block; empty at the end.
  absl::StatusOr<absl::string_view> Next() {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(kReadBytes, file_.Size() - offset_));
    TESSERA_RETURN_IF_ERROR(file_.Read(offset_, absl::MakeSpan(buffer_).subspan(0, n)));
    offset_ += n;
    return absl::string_view(buffer_.data(), n);
  }
  uint64_t offset() const { return offset_; }  // where the last block ends

 private:
  const ReadableFile& file_;
  std::string buffer_;
  uint64_t offset_ = 0;
};

absl::Status Truncated(uint64_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      "ends at byte ", bytes, " in the middle of its packed data; is the copy complete?"));
}
absl::Status Damaged(uint64_t byte, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("packed data is damaged at about byte ", byte, ": ", what));
}

struct Inflater {
  z_stream stream = {};
  ~Inflater() { inflateEnd(&stream); }
};

// gzip, RFC 1952: one or several members; zeros may follow the last.
absl::Status UnpackGzip(Input& input, const Sink& sink) {
  Inflater inflater;
  z_stream& z = inflater.stream;
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&z, kGzipOnly) != Z_OK) return absl::ResourceExhaustedError("no memory");
  std::string out(kReadBytes, '\0');
  bool in_member = true;
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(absl::string_view block, input.Next());
    if (block.empty()) return in_member ? Truncated(input.offset()) : absl::OkStatus();
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
    z.avail_in = static_cast<uInt>(block.size());
    do {
      if (!in_member) {
        while (z.avail_in > 0 && *z.next_in == 0) ++z.next_in, --z.avail_in;
        if (z.avail_in == 0) break;
        inflateReset(&z);
        in_member = true;
      }
      z.next_out = reinterpret_cast<Bytef*>(out.data());
      z.avail_out = static_cast<uInt>(out.size());
      const int result = inflate(&z, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) return absl::ResourceExhaustedError("no memory");
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return Damaged(input.offset() - z.avail_in, z.msg != nullptr ? z.msg : "not gzip");
      }
      TESSERA_RETURN_IF_ERROR(sink({out.data(), out.size() - z.avail_out}));
      if (result == Z_STREAM_END) in_member = false;
    } while (z.avail_in > 0 || (in_member && z.avail_out == 0));
  }
}

struct Decompressor {
  ZSTD_DStream* stream = ZSTD_createDStream();
  ~Decompressor() { ZSTD_freeDStream(stream); }
};

// zstd, RFC 8878: one or several frames.
absl::Status UnpackZstd(Input& input, const Sink& sink) {
  Decompressor decompressor;
  if (decompressor.stream == nullptr) return absl::ResourceExhaustedError("no memory");
  std::string out(kReadBytes, '\0');
  size_t hint = 1;  // 0: between frames
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(absl::string_view block, input.Next());
    if (block.empty()) return hint != 0 ? Truncated(input.offset()) : absl::OkStatus();
    ZSTD_inBuffer in = {block.data(), block.size(), 0};
    bool full = false;  // the output buffer was full: there may be more output without more input
    while (in.pos < in.size || full) {
      ZSTD_outBuffer to = {out.data(), out.size(), 0};
      hint = ZSTD_decompressStream(decompressor.stream, &to, &in);
      if (ZSTD_isError(hint)) {
        return Damaged(input.offset() - (in.size - in.pos), ZSTD_getErrorName(hint));
      }
      TESSERA_RETURN_IF_ERROR(sink({out.data(), to.pos}));
      full = to.pos == to.size && hint != 0;
    }
  }
}

absl::Status CheckMagic(const ReadableFile& packed, const std::string& path, bool gzip) {
  const std::string expected = gzip ? "\x1f\x8b" : "\x28\xb5\x2f\xfd";
  if (packed.Size() == 0) return absl::InvalidArgumentError("is empty");
  std::string start(std::min<uint64_t>(expected.size(), packed.Size()), '\0');
  TESSERA_RETURN_IF_ERROR(packed.Read(0, absl::MakeSpan(start)));
  // A zstd file may begin with a frame to be skipped, whose magic number is 0x184D2A5?.
  const bool skippable = !gzip && start.size() == 4 && absl::EndsWith(start, "\x2a\x4d\x18") &&
                         (static_cast<unsigned char>(start[0]) & 0xf0) == 0x50;
  if (start == expected || skippable) return absl::OkStatus();
  if (start.size() < expected.size()) return Truncated(packed.Size());
  return absl::InvalidArgumentError(absl::StrCat("is named like a ", gzip ? "gzip" : "zstd",
                                                 " file, but does not start like one"));
}

}  // namespace

bool IsPacked(absl::string_view path) {
  return absl::EndsWith(path, ".gz") || absl::EndsWith(path, ".zst");
}

absl::string_view UnpackedName(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, ".gz") || absl::ConsumeSuffix(&path, ".zst")) {
  }
  return path;
}

absl::StatusOr<UnpackedFile> Unpack(FileSystem& fs, const ReadableFile& packed,
                                    const std::string& path, const std::string& scratch) {
  const bool gzip = absl::EndsWith(path, ".gz");
  TESSERA_RETURN_IF_ERROR(WithContext(CheckMagic(packed, path, gzip), path));
  UnpackedFile unpacked;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out, fs.Create(scratch));
  TESSERA_ASSIGN_OR_RETURN(unpacked.file, fs.Open(scratch));
  TESSERA_RETURN_IF_ERROR(fs.Remove(scratch));
  const Sink sink = [&](absl::string_view bytes) {
    unpacked.bytes += bytes.size();
    return WithContext(out->Append(bytes), "unpack into the scratch folder");
  };
  Input input(packed);
  TESSERA_RETURN_IF_ERROR(
      WithContext(gzip ? UnpackGzip(input, sink) : UnpackZstd(input, sink), path));
  TESSERA_RETURN_IF_ERROR(WithContext(out->Close(), path));
  return unpacked;
}

}  // namespace tessera::worker
