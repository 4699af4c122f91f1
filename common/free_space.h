#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace tessera {

// Whether the folder's disk has less space for this process than a small file takes.
bool IsFull(const std::string& folder);
// The text "no room in FOLDER (8192 bytes free)", for messages.
std::string NoRoomIn(const std::string& folder);
// Writes a small file into the folder and removes it again. RESOURCE_EXHAUSTED: the disk is full.
absl::Status CheckRoom(FileSystem& fs, const std::string& folder);

}  // namespace tessera
