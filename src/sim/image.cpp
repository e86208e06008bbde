// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/fd.hpp"
#include "sim/entry.hpp"
#include "sim/fat_binary.hpp"
#include "sim/managed_variables.hpp"
#include "sim/module.hpp"

namespace cuvmm::sim {
namespace {

// The first bytes of compiled code.
constexpr unsigned char elf[] = {0x7f, 'E', 'L', 'F'};

// The image may be shorter than `magic`.
template <std::size_t length>
bool begins_with(const char* image, const unsigned char (&magic)[length]) {
  return std::strncmp(image, reinterpret_cast<const char*>(magic), length) == 0;
}

CUresult read_text(const char* symbol, std::string_view text, std::shared_ptr<const Ptx>& ptx) {
  auto read = std::make_shared<Ptx>();
  const PtxError error = read_ptx(text, *read);
  if (!error.lacking.empty()) {
    return lacking(symbol, ("cannot simulate " + error.lacking).c_str());
  }
  if (error.answer != CUDA_SUCCESS) return error.answer;
  read->managed = ManagedVariables::place(*read);
  if (read->managed == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ptx = std::move(read);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_image(const char* symbol, const void* image, std::shared_ptr<const Ptx>& ptx) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_fat_binary(image)) {
    const FatBinaryText read = read_fat_binary(image);
    if (!read.lacking.empty()) return lacking(symbol, ("cannot run " + read.lacking).c_str());
    return read.answer == CUDA_SUCCESS ? read_text(symbol, read.ptx, ptx) : read.answer;
  }
  const char* text = static_cast<const char*>(image);
  if (begins_with(text, elf)) {
    return lacking(symbol, "cannot run machine code (SASS), only PTX: build with -arch=compute_90");
  }
  return read_text(symbol, text, ptx);
}

CUresult read_image_file(const char* symbol, const char* path, std::shared_ptr<const Ptx>& ptx) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Fd file{open(path, O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat status {};
  if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode))
    return CUDA_ERROR_FILE_NOT_FOUND;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(file.number(), text.data() + have, text.size() - have);
    if (got < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return read_image(symbol, text.c_str(), ptx);
}

}  // namespace cuvmm::sim
