// SPDX-License-Identifier: Apache-2.0
// Hand-made records, and recordings made of them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "trace/sink.hpp"
#include "view/recording.hpp"

namespace cuvmm::test {

inline TraceRecord allocated(std::uint64_t time, std::uint64_t address, Size size,
                             std::uint16_t flags = trace_flag::native) {
  return {.time = time,
          .event = TraceEvent::Allocate,
          .flags = flags,
          .device = 0,
          .context = 1,
          .address = address,
          .size = size,
          .other = size};
}
inline TraceRecord freed(std::uint64_t time, std::uint64_t address) {
  return {.time = time, .event = TraceEvent::Free, .device = 0, .context = 1, .address = address};
}
inline TraceRecord mapped(std::uint64_t time, std::uint64_t address, Size size,
                          std::uint64_t chunk) {
  return {.time = time,
          .event = TraceEvent::Map,
          .device = 0,
          .detail = 1,
          .address = address,
          .size = size,
          .other = chunk};
}
inline TraceRecord unmapped(std::uint64_t time, std::uint64_t address, Size size) {
  return {.time = time, .event = TraceEvent::Unmap, .device = 0, .address = address, .size = size};
}

// A file that is removed with the test.
class OwnFile {
 public:
  OwnFile() {
    const int file = ::mkstemp(path_);
    EXPECT_GE(file, 0);
    ::close(file);
    ::unlink(path_);
  }
  ~OwnFile() { ::unlink(path_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/cuvmm_view_XXXXXX";
};

inline TraceHeader header_of_one_device(Size memory = 64 * MiB) {
  TraceHeader header = TraceHeader::of_this_process();
  header.mode = "MONITOR";
  header.calls = {"cuMemAlloc"};
  header.facts.devices.push_back({.ordinal = 0, .memory = memory, .name = "made up"});
  return header;
}

inline void write_trace(const std::string& path, const std::vector<TraceRecord>& records,
                        const TraceHeader& header = header_of_one_device()) {
  auto sink = TraceSink::create(path, header, unlimited);
  ASSERT_TRUE(sink.ok());
  sink->add(records, trace_format::many_threads, 0);
  sink->finish(0, records.empty() ? 0 : records.back().time, 1);
}

inline view::Recording opened(const std::string& path) {
  auto recording = view::Recording::open(path);
  EXPECT_TRUE(recording.ok()) << recording.error().text();
  return std::move(*recording);
}

}  // namespace cuvmm::test
