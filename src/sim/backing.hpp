// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "sim/views.hpp"

namespace cuvmm::sim {

// The bytes behind the chunks of one device or of the host: one sparse memory file. Offsets are
// never reused, so the file cannot fragment; freed extents become holes.
class Backing {
 public:
  // Returns an extent whose `file` is -1 if the system cannot create a memory file.
  Extent take(Size size);
  void give_back(const Extent& extent);

 private:
  int file();
  std::atomic<int> file_{-1};
  std::atomic<std::uint64_t> next_offset_{0};
};

// A separate file for memory that is shared with another process.
Extent take_own_file(Size size);
void close_own_file(const Extent& extent);

}  // namespace cuvmm::sim
