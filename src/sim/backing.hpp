// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "sim/views.hpp"

namespace cuvmm::sim {

// The bytes behind one device's (or the host's) chunks: one sparse file in memory. Offsets are
// never used twice, so they never fragment; what is given back is a hole.
class Backing {
 public:
  // `.file` is -1 where the system has no memory file to give.
  Extent take(Size size);
  void give_back(const Extent& extent);

 private:
  int file();
  std::atomic<int> file_{-1};
  std::atomic<std::uint64_t> next_offset_{0};
};

// A file of its own for what another process is to see.
Extent take_own_file(Size size);
void close_own_file(const Extent& extent);

}  // namespace cuvmm::sim
