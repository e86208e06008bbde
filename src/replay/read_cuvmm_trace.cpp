// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "replay/read_trace.hpp"
#include "trace/context_ends.hpp"
#include "trace/limits.hpp"
#include "trace/program_chunk_walk.hpp"
#include "trace/reader.hpp"
#include "trace/refusals.hpp"

namespace cuvmm::replay {
namespace {

Kind kind_of(const TraceRecord& record) {
  return (record.flags & trace_flag::stream_ordered) != 0 ? Kind::StreamOrdered : Kind::Blocking;
}

bool is_request(const TraceRecord& record) {
  return is_refused_allocation(record) ||
         (record.event == TraceEvent::Allocate && is_device_memory(record));
}

std::optional<Size> memory_of(const TraceHeader& header, std::int16_t ordinal) {
  for (const TraceDevice& device : header.facts.devices) {
    if (device.ordinal == ordinal && device.memory != 0) return device.memory;
  }
  return {};
}

}  // namespace

Result<ReplayTrace> read_cuvmm_trace(const std::string& path) {
  TraceReader reader = TRY(TraceReader::open(path));
  TraceBuilder builder;
  std::optional<std::int16_t> device;
  ContextEnds context_ends;
  ProgramChunkWalk program_chunks{std::nullopt};
  TraceLimits limits{reader.header()};
  std::unordered_map<std::uint64_t, std::uint32_t> contexts;  // of blocking memory, by address
  while (const TraceRecord* record = reader.next()) {
    const std::uint64_t time_us = record->time / 1000;
    if (const std::uint32_t ended = context_ends.ended_by(*record)) {
      std::erase_if(contexts, [&](const auto& block) {
        if (block.second == ended) builder.free(time_us, block.first);
        return block.second == ended;
      });
    }
    program_chunks.add(*record);
    limits.add(*record);
    if (is_request(*record)) {
      if (!device) device = record->device;
      if (record->device != *device) {
        return Error{.kind = ErrorKind::NotSupported,
                     .doing = "read trace",
                     .subject = "it covers several devices"};
      }
    }
    if (record->event == TraceEvent::Allocate && is_device_memory(*record)) {
      // The free was lost during recording, or in a damaged block.
      if (builder.is_live(record->address)) builder.free(time_us, record->address);
      builder.allocate({.time_us = time_us,
                        .address = record->address,
                        .size = record->size,
                        .stream = record->stream,
                        .kind = kind_of(*record)});
      if (kind_of(*record) == Kind::Blocking) contexts[record->address] = record->context;
    } else if (is_refused_allocation(*record)) {
      builder.refuse(
          {.time_us = time_us,
           .size = record->size,
           .stream = record->stream,
           .kind = kind_of(*record)},
          {}, program_chunks.bytes_on(record->device),
          limits.of(record->device, memory_of(reader.header(), record->device).value_or(0)));
    } else if (record->event == TraceEvent::Free && is_device_memory(*record)) {
      builder.free(time_us, record->address);
      contexts.erase(record->address);
    }
  }
  TRY(reader.status());
  if (device) {
    if (const auto memory = memory_of(reader.header(), *device)) builder.memory(*memory);
  }
  ReplayTrace trace = builder.finish(Source::Cuvmm);
  trace.note = reader.note();
  return trace;
}

}  // namespace cuvmm::replay
