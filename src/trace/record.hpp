// SPDX-License-Identifier: Apache-2.0
// The record of one event: 64 bytes, the same in memory and in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace cuvmm {

enum class TraceEvent : std::uint16_t {
#define CUVMM_TRACE_EVENT(name, number, ...) name = number,
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
};

// "Allocate"; nullptr for an event that this version does not know.
const char* name_of(TraceEvent event);

// The events as Markdown, for docs/internals/trace_format.md.
std::string describe_trace_events();

// Flags that qualify an event.
namespace trace_flag {
inline constexpr std::uint16_t stream_ordered = 0x0001;  // cuMemAllocAsync and its like
inline constexpr std::uint16_t native = 0x0002;          // the driver's own memory, not ours
inline constexpr std::uint16_t captured = 0x0004;        // became a node of a graph
inline constexpr std::uint16_t per_thread = 0x0008;  // the call's per-thread default stream variant
inline constexpr std::uint16_t on_host = 0x0010;     // the memory lies on the host
inline constexpr std::uint16_t on_peer = 0x0020;     // the memory lies on another device
inline constexpr std::uint16_t managed = 0x0040;     // managed memory
inline constexpr std::uint16_t shared = 0x0080;      // other processes may use the memory
inline constexpr std::uint16_t scheduled = 0x0100;   // the scheduler issued it
inline constexpr std::uint16_t imported = 0x0200;    // the memory came from another process
}  // namespace trace_flag

inline constexpr std::uint16_t no_call = 0xFFFF;
inline constexpr std::int16_t no_device = -1;

struct TraceRecord {
  std::uint64_t time = 0;  // ns since the trace's start. While recording: now_ns(), or 0 for now
  TraceEvent event = TraceEvent::Note;
  std::uint16_t flags = 0;   // trace_flag
  std::uint32_t thread = 0;  // 0, 1, 2... in order of the first event; recording fills it in
  std::int16_t device = no_device;
  std::uint16_t call = no_call;  // row of the header's table of calls
  std::int16_t result = 0;       // the CUresult returned to the program
  std::uint16_t client = 0;      // of the scheduler; 0: none
  std::uint32_t context = 0;     // number of the context; 0: none
  std::uint32_t detail = 0;
  std::uint64_t address = 0;  // events.def says what these and `detail` mean for each event
  std::uint64_t size = 0;
  std::uint64_t stream = 0;
  std::uint64_t other = 0;

  bool operator==(const TraceRecord&) const = default;
};

// Whether the record is about memory from a device allocator. A captured allocation gets memory
// only when its graph runs.
inline bool is_device_memory(const TraceRecord& record) {
  constexpr std::uint16_t others =
      trace_flag::on_host | trace_flag::managed | trace_flag::captured | trace_flag::imported;
  return (record.flags & others) == 0;
}

static_assert(sizeof(TraceRecord) == 64 && alignof(TraceRecord) == 8);
static_assert(std::is_trivially_copyable_v<TraceRecord>);
static_assert(std::has_unique_object_representations_v<TraceRecord>, "no byte is left unwritten");
static_assert(offsetof(TraceRecord, time) == 0 && offsetof(TraceRecord, event) == 8 &&
              offsetof(TraceRecord, flags) == 10 && offsetof(TraceRecord, thread) == 12 &&
              offsetof(TraceRecord, device) == 16 && offsetof(TraceRecord, call) == 18 &&
              offsetof(TraceRecord, result) == 20 && offsetof(TraceRecord, client) == 22 &&
              offsetof(TraceRecord, context) == 24 && offsetof(TraceRecord, detail) == 28 &&
              offsetof(TraceRecord, address) == 32 && offsetof(TraceRecord, size) == 40 &&
              offsetof(TraceRecord, stream) == 48 && offsetof(TraceRecord, other) == 56);

TraceRecord trace_note(std::string_view text);     // cut to 32 bytes
std::string note_of(const TraceRecord& record);    // of an event Note
std::string thread_of(const TraceRecord& record);  // the name in an event Thread

}  // namespace cuvmm
