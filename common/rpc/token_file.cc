#include "common/rpc/token_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

absl::StatusOr<std::vector<std::string>> Parse(const std::string& path, absl::string_view content) {
  std::vector<std::string> tokens;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (!std::all_of(line.begin(), line.end(), absl::ascii_isgraph)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": a token is letters, digits and signs of ASCII, without spaces"));
    }
    if (line.size() < TokenFile::kFewestCharacters) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": a token of ", line.size(), " characters; expected ",
                       TokenFile::kFewestCharacters, " at least (openssl rand -hex 32)"));
    }
    tokens.emplace_back(line);
  }
  if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no token"));
  return tokens;
}

bool SameTime(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path) {
  auto file = std::unique_ptr<TokenFile>(new TokenFile(path));
  absl::MutexLock lock(&file->mu_);
  absl::StatusOr<std::string> content = ReadStream(path, kMostBytes);
  if (!content.ok()) return absl::InvalidArgumentError(content.status().message());
  TESSERA_ASSIGN_OR_RETURN(file->tokens_, Parse(path, *content));
  file->content_ = *std::move(content);
  std::error_code gone;
  file->read_once_ = !std::filesystem::is_regular_file(path, gone);
  return file;
}

std::string TokenFile::Sent() const {
  absl::MutexLock lock(&mu_);
  return tokens_.front();
}

bool TokenFile::Accepts(absl::string_view token) const {
  absl::MutexLock lock(&mu_);
  bool accepted = false;
  for (const std::string& one : tokens_) accepted |= SameTime(one, token);
  return accepted;
}

void TokenFile::Look() {
  if (read_once_) return;
  absl::StatusOr<std::string> content = ReadWholeFile(PosixFileSystem(), path_, kMostBytes);
  absl::StatusOr<std::vector<std::string>> tokens =
      content.ok() ? Parse(path_, *content) : content.status();
  std::string complaint(tokens.status().message());
  if (complaint != complaint_ && !complaint.empty()) {
    SPDLOG_WARN("{}; the tokens that were there before count", complaint);
  }
  complaint_ = std::move(complaint);
  if (!tokens.ok() || *content == content_) return;
  content_ = *std::move(content);
  SPDLOG_INFO("{} has changed: {} token(s)", path_, tokens->size());
  absl::MutexLock lock(&mu_);
  tokens_ = *std::move(tokens);
}

}  // namespace tessera
