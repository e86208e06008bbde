// SPDX-License-Identifier: Apache-2.0
#include "preload/traces.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "trace/reader.hpp"

namespace cuvmm::test {

MemoryEvents memory_events(const std::string& path) {
  MemoryEvents events;
  auto trace = TraceReader::open(path);
  if (!trace.ok()) {
    ADD_FAILURE() << path << ": " << trace.error().text();
    return events;
  }
  std::map<std::uint64_t, Size> live;
  bool has_served_free = false;
  const auto read = trace->for_each([&](const TraceRecord& record) {
    if (record.event == TraceEvent::Allocate) {
      ++events.allocations;
      live[record.address] = record.size;
    } else if (record.event == TraceEvent::AllocateFailed) {
      ++events.failed_allocations;
    } else if (record.event == TraceEvent::Free && record.address != 0) {
      ++events.frees;
      if ((record.flags & trace_flag::native) == 0) {
        has_served_free = true;
        events.every_served_free_has_its_size &=
            record.size == live[record.address] && record.other >= record.size;
      }
      events.every_free_has_its_allocation &= live.erase(record.address) == 1;
    }
  });
  events.every_served_free_has_its_size &= has_served_free;
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(trace->note(), "");
  EXPECT_EQ(trace->health().dropped, 0u);
  return events;
}

bool file_exists(const std::string& path) {
  return std::filesystem::exists(path);
}

}  // namespace cuvmm::test
