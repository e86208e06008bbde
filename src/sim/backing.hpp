// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "sim/views.hpp"

namespace cuvmm::sim {

// The bytes behind the chunks of one device or of the host: one sparse memory file. Freed extents
// become holes, and their offsets are never used again, so the file cannot fragment. The exception
// is a bounded number of extents that stay as they are for the next chunks of the same size, whose
// contents are undefined anyway: page faults on new memory took most of the tests' time.
class Backing {
 public:
  // Returns an extent whose `file` is -1 if the system cannot create a memory file.
  Extent take(Size size);
  void give_back(const Extent& extent);
  // Makes a hole of an extent that its owner will use again.
  static void empty(const Extent& extent);

 private:
  int file();
  std::atomic<int> file_{-1};
  std::atomic<std::uint64_t> next_offset_{0};
  std::mutex lock_;  // guards what follows
  std::multimap<Size, Extent> kept_;
  Size kept_bytes_ = 0;
};

// A separate file for memory that is shared with another process. `device` is the number on the
// machine of the device that the memory lies on; -1: the host.
Extent take_own_file(Size size, int device);
// The number that take_own_file() was given, in this process or another. Nothing if it did not make
// the file.
std::optional<int> device_of_own_file(int file);
void close_own_file(const Extent& extent);

}  // namespace cuvmm::sim
