// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cuvmm::test {

struct MemoryEvents {
  std::uint64_t allocations = 0;
  std::uint64_t failed_allocations = 0;
  std::uint64_t frees = 0;
  bool every_free_has_its_allocation = true;
  bool every_served_free_has_its_size = true;  // and there is at least one such free
};

// A summary of a trace's memory events. Fails the test if the trace cannot be read whole.
MemoryEvents memory_events(const std::string& path);

bool file_exists(const std::string& path);

}  // namespace cuvmm::test
