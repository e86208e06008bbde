// SPDX-License-Identifier: Apache-2.0
// Support for trace tests: a private folder, files as bytes, small traces.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "trace/format.hpp"
#include "trace/reader.hpp"
#include "trace/record.hpp"
#include "trace/sink.hpp"

namespace cuvmm::test {

// The writer's thread may get no core for a while.
inline constexpr Duration in_time{60'000'000};

// Removed with its contents at the end.
class OwnFolder {
 public:
  OwnFolder() {
    char pattern[] = "/tmp/cuvmm_trace_XXXXXX";
    if (::mkdtemp(pattern) == nullptr) throw std::runtime_error{"no folder for traces"};
    path_ = pattern;
  }
  ~OwnFolder() { std::filesystem::remove_all(path_); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string in(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class TraceFolder : public ::testing::Test {
 protected:
  std::string in_folder(const std::string& name) const { return folder_.in(name); }
  std::size_t files_in_folder() const {
    const std::filesystem::directory_iterator files{folder_.path()};
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

  OwnFolder folder_;
};

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file{path, std::ios::binary | std::ios::trunc};
  file << bytes;
}

inline TraceHeader small_header() {
  return {.start_ns = 1000,
          .wall_ns = 1'700'000'000'000'000'000,
          .process = 4711,
          .library_version = "0.1.0",
          .mode = "VMM",
          .host = "box",
          .command = {"./train", "--lr", "1e-3", ""},
          .calls = {"cuMemAlloc", "cuMemFree"},
          .options = {{"VMM_LIMIT", "16G"}},
          .facts = {.devices = {{.ordinal = 0, .memory = 8 * GiB, .name = "Simulated"}},
                    .names = {{TraceSubject::Client, 1, "latency"}}}};
}

// A record that is unique for each number.
inline TraceRecord record_number(std::uint64_t number, std::uint64_t time,
                                 std::uint32_t thread = 0) {
  return {.time = time,
          .event = TraceEvent::Allocate,
          .flags = trace_flag::stream_ordered,
          .thread = thread,
          .device = 1,
          .call = 1,
          .result = -3,
          .client = 7,
          .context = 2,
          .detail = 99,
          .address = number,
          .size = ~number,
          .stream = number * 3,
          .other = number << 32};
}

inline std::vector<TraceRecord> records_of(TraceReader& trace) {
  std::vector<TraceRecord> records;
  const auto end = trace.for_each([&](const TraceRecord& record) { records.push_back(record); });
  EXPECT_TRUE(end) << end.error().text();
  return records;
}

inline TraceReader opened(const std::string& path) {
  auto trace = TraceReader::open(path);
  EXPECT_TRUE(trace) << path << ": " << trace.error().text();
  return std::move(*trace);
}

// Reads a trace from memory: thousands of them take no disk space.
inline Result<TraceReader> read_bytes(const std::string& bytes) {
  Fd file{::memfd_create("trace", MFD_CLOEXEC)};
  EXPECT_EQ(::write(file.number(), bytes.data(), bytes.size()), std::ssize(bytes));
  return TraceReader::open(std::move(file));
}

inline std::vector<TraceRecord> records_of(const std::string& path) {
  TraceReader trace = opened(path);
  return records_of(trace);
}

inline std::string refusal_of(const std::string& path) {
  const auto trace = TraceReader::open(path);
  return trace ? "it was read" : trace.error().text();
}

inline TraceSink given_sink(const std::string& path, Size size_cap = 1 * GiB) {
  auto sink = TraceSink::create(path, small_header(), size_cap);
  EXPECT_TRUE(sink) << sink.error().text();
  return std::move(*sink);
}

// `blocks` blocks of `records` records each, one nanosecond apart, numbered from 0.
inline void write_trace(const std::string& path, std::size_t blocks, std::size_t records) {
  TraceSink sink = given_sink(path);
  std::uint64_t number = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::vector<TraceRecord> all;
    for (std::size_t i = 0; i < records; ++i, ++number) {
      all.push_back(record_number(number, number));
    }
    sink.add(all, 0, 0);
  }
  sink.finish(0, number, 1);
}

}  // namespace cuvmm::test
