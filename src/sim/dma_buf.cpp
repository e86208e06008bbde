// SPDX-License-Identifier: Apache-2.0
#include "sim/dma_buf.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace cuvmm::sim {

int new_dma_buf(Size size) {
  const int file = memfd_create("cuvmm-sim-dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  const bool sealed =
      ftruncate(file, static_cast<off_t>(size)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
  // A write-only descriptor can be neither read nor mapped, and the seals refuse writes.
  char name[64];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const int opaque = sealed ? open(name, O_WRONLY | O_CLOEXEC) : -1;
  close(file);
  return opaque;
}

}  // namespace cuvmm::sim
