// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.hpp"
#include "base/made_once.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

std::optional<SharedFile> share(const std::shared_ptr<Chunk>& chunk) {
  if (!has_backing() || !Process::get().space().make_shareable(chunk)) return std::nullopt;
  struct stat status {};
  const int file = chunk->extent().file;
  if (fstat(file, &status) != 0) return std::nullopt;
  return SharedFile{static_cast<std::int32_t>(getpid()), file, status.st_ino};
}

Fd open_shared(const SharedFile& shared) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", shared.process, shared.descriptor);
  Fd file{open(path, O_RDWR | O_CLOEXEC)};
  struct stat status {};
  if (!file.is_open() || fstat(file.number(), &status) != 0 || status.st_ino != shared.inode) {
    return Fd{};
  }
  return file;
}

bool is_alive(const SharedFile& shared) {
  char path[64];
  char program[8];
  std::snprintf(path, sizeof path, "/proc/%d/exe", shared.process);
  // A zombie process has no program any more.
  return readlink(path, program, sizeof program) > 0;
}

std::uint64_t secret_of_this_process() {
  static constinit MadeOnce<const std::uint64_t> secret;
  return secret.get([] {
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = now_ns();
    return random | 1;
  });
}

}  // namespace cuvmm::sim
