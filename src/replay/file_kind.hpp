// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::replay {

// What a file is, by its first bytes; of one that gzip has compressed, by those inside.
enum class FileKind : std::uint8_t {
  CuvmmTrace,
  CuvmmLog,
  Pickle,  // a PyTorch memory snapshot, most likely
  PytorchTable,
  RmmLog,
  Empty,
  ZipArchive,  // what torch.save writes
  Json,
  Program,
  Picture,
  OtherTable,
  Unknown
};

// SystemFailed where it cannot be opened or read: a folder, no such file, no right to.
Result<FileKind> kind_of_file(const std::string& path);
// "a zip archive, as torch.save() writes it".
const char* name_of(FileKind kind);

}  // namespace cuvmm::replay
