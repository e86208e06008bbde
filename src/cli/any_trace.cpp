// SPDX-License-Identifier: Apache-2.0
#include "cli/any_trace.hpp"

#include <filesystem>

#include "cli/output.hpp"
#include "replay/file_kind.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::int16_t the_device = 0;  // each of these histories covers one device

TraceRecord record_of(const replay::ReplayTrace& trace, const replay::ReplayEvent& event) {
  const bool is_allocation = event.action == replay::Action::Allocate;
  return {.time = event.time_us * 1000,
          .event = is_allocation ? TraceEvent::Allocate : TraceEvent::Free,
          .flags = trace_flag::stream_ordered,
          .device = the_device,
          .address = trace.addresses[event.block],
          .size = event.size,
          .stream = event.stream};
}

TraceRecord record_of(const replay::RefusedAllocation& refusal) {
  return {.time = refusal.time_us * 1000,
          .event = TraceEvent::AllocateFailed,
          .flags = trace_flag::stream_ordered,
          .device = the_device,
          .result = 2,  // CUDA_ERROR_OUT_OF_MEMORY
          .size = refusal.size,
          .stream = refusal.stream,
          .other = refusal.available.value_or(0)};
}

view::Recording recording_of(const replay::ReplayTrace& trace) {
  std::vector<TraceRecord> records;
  records.reserve(trace.events.size() + trace.refusals.size());
  auto refusal = trace.refusals.begin();
  for (std::size_t i = 0; i <= trace.events.size(); ++i) {
    for (; refusal != trace.refusals.end() && refusal->before == i; ++refusal) {
      records.push_back(record_of(*refusal));
    }
    if (i < trace.events.size()) records.push_back(record_of(trace, trace.events[i]));
  }
  TraceHeader header;
  header.command = {name_of(trace.source)};
  return view::Recording::of(std::move(header), std::move(records));
}

}  // namespace

Result<AnyTrace> open_any_trace(const std::string& path) {
  const replay::FileKind kind = TRY(replay::kind_of_file(path));
  if (kind == replay::FileKind::CuvmmTrace || kind == replay::FileKind::CuvmmLog) {
    return AnyTrace{TRY(view::Recording::open(path))};
  }
  return AnyTrace{TRY(replay::read_trace(path))};
}

Result<view::Recording> open_any_recording(const std::string& path) {
  AnyTrace any = TRY(open_any_trace(path));
  if (auto* const ours = std::get_if<view::Recording>(&any)) return std::move(*ours);
  return recording_of(std::get<replay::ReplayTrace>(any));
}

bool would_overwrite(const std::string& out, const std::vector<std::string>& traces) {
  if (out == "-") return false;  // standard output
  for (const std::string& trace : traces) {
    std::error_code none;  // a file that does not exist is no other's
    if (!std::filesystem::equivalent(out, trace, none)) continue;
    say(out + ": this is the trace itself; name another file to write");
    return true;
  }
  return false;
}

}  // namespace cuvmm::cli
