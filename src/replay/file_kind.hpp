// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::replay {

// The kind of a file, by its first bytes, after decompression if it is compressed by gzip.
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

// SystemFailed if it cannot be opened or read: a folder, no such file, no permission.
Result<FileKind> kind_of_file(const std::string& path);
// "a zip archive, as torch.save() writes it".
const char* name_of(FileKind kind);

}  // namespace cuvmm::replay
