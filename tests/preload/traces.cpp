// SPDX-License-Identifier: Apache-2.0
#include "preload/traces.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "trace/reader.hpp"

namespace cuvmm::test {

MemoryEvents memory_events(const std::string& path) {
  MemoryEvents events;
  auto trace = TraceReader::open(path);
  if (!trace.ok()) {
    ADD_FAILURE() << path << ": " << trace.error().text();
    return events;
  }
  std::set<std::uint64_t> live;
  const auto read = trace->for_each([&](const TraceRecord& record) {
    if (record.event == TraceEvent::Allocate) {
      ++events.allocations;
      live.insert(record.address);
    } else if (record.event == TraceEvent::AllocateFailed) {
      ++events.failed_allocations;
    } else if (record.event == TraceEvent::Free && record.address != 0) {
      ++events.frees;
      events.every_free_has_its_allocation &= live.erase(record.address) == 1;
    }
  });
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(trace->note(), "");
  EXPECT_EQ(trace->health().dropped, 0u);
  return events;
}

bool file_exists(const std::string& path) {
  return std::filesystem::exists(path);
}

}  // namespace cuvmm::test
