// SPDX-License-Identifier: Apache-2.0
// What a trace says of the process that it was taken from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace cuvmm {

struct TraceDevice {
  std::int32_t ordinal = 0;
  Size memory = 0;
  std::string name;
  bool operator==(const TraceDevice&) const = default;
};

// An option that differs from its default.
struct TraceOption {
  std::string name;
  std::string value;
  bool operator==(const TraceOption&) const = default;
};

// What a number in records is called.
enum class TraceSubject : std::uint32_t {
  Thread = 1,
  Client = 2,
  Context = 3,
  Stream = 4,
  Pool = 5,
  Arena = 6
};

struct TraceName {
  TraceSubject subject = TraceSubject::Thread;
  std::uint64_t number = 0;
  std::string text;
  bool operator==(const TraceName&) const = default;
};

// What may become known only while the trace is being taken: added to it whenever that is.
struct TraceFacts {
  std::vector<TraceDevice> devices;
  std::vector<TraceName> names;
  bool operator==(const TraceFacts&) const = default;
};

struct TraceHeader {
  std::uint64_t start_ns = 0;  // of the monotonic clock; records' times count from here
  std::uint64_t wall_ns = 0;   // the same moment since 1970, in UTC
  std::uint64_t process = 0;
  std::string library_version;
  std::string mode;  // VMM_MODE
  std::string host;
  std::vector<std::string> command;
  std::vector<std::string> calls;  // what `call` in records counts through
  std::vector<TraceOption> options;
  TraceFacts facts;

  // Of this process, now: all but mode, calls, options and facts.
  static TraceHeader of_this_process();

  // "cuMemAlloc"; "" for no call or one that the table lacks.
  std::string_view call(std::uint16_t row) const {
    return row < calls.size() ? std::string_view{calls[row]} : std::string_view{};
  }
  bool operator==(const TraceHeader&) const = default;
};

namespace trace_format {

// The bytes at the beginning of a file, a multiple of 64.
std::string encode(const TraceHeader& header);
// Sections for a block of their own, a multiple of 64 bytes.
std::string encode(const TraceFacts& facts);

// The size of the whole header, from the first 64 bytes of a file.
Result<std::size_t> header_size(std::span<const std::byte> start);
// From the header's bytes, all of them.
Result<TraceHeader> decode_header(std::span<const std::byte> bytes);
// Adds the sections of a block. False where they are not what they should be.
bool add_sections(std::span<const std::byte> sections, TraceHeader& header);

}  // namespace trace_format

}  // namespace cuvmm
