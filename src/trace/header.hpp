// SPDX-License-Identifier: Apache-2.0
// The description of the traced process in a trace's header.
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

// The kinds of numbers in records that can have a name.
enum class TraceSubject : std::uint32_t {
  Thread = 1,
  Client = 2,
  Context = 3,
  Stream = 4,
  Pool = 5,
  Arena = 6,
  Place = 7
};

struct TraceName {
  TraceSubject subject = TraceSubject::Thread;
  std::uint64_t number = 0;
  std::string text;
  bool operator==(const TraceName&) const = default;
};

// A call stack: a place in the code, and the stack that called it.
struct TraceStack {
  std::uint32_t number = 0;
  std::uint32_t caller = 0;  // the stack's number, smaller than this one; 0: none
  std::uint32_t place = 0;
  bool operator==(const TraceStack&) const = default;
};

// Facts that may become known only during the trace, and are then appended to it.
struct TraceFacts {
  std::vector<TraceDevice> devices;
  std::vector<TraceName> names;
  std::vector<TraceStack> stacks;
  bool operator==(const TraceFacts&) const = default;
};

struct TraceHeader {
  std::uint64_t start_ns = 0;  // on the monotonic clock; the times of records are relative to it
  std::uint64_t wall_ns = 0;   // the same moment, since 1970 in UTC
  std::uint64_t process = 0;
  std::string library_version;
  std::string mode;  // VMM_MODE
  std::string host;
  std::vector<std::string> command;
  std::vector<std::string> calls;  // indexed by `call` in records
  std::vector<TraceOption> options;
  TraceFacts facts;

  // Describes this process and the current time; leaves mode, calls, options and facts empty.
  static TraceHeader of_this_process();

  // "cuMemAlloc"; "" for no call, or one that is not in the table.
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
// Decodes all bytes of the header.
Result<TraceHeader> decode_header(std::span<const std::byte> bytes);
// Adds the sections of a block. False if they are malformed.
bool add_sections(std::span<const std::byte> sections, TraceHeader& header);

}  // namespace trace_format

}  // namespace cuvmm
