// SPDX-License-Identifier: Apache-2.0
// time_us,action,address,size,stream: what torch.cuda.memory._record_memory_history() keeps.
#include "replay/csv.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::replay {
namespace {

using Columns = CsvColumns<5>;
constexpr Columns::Names names{"time_us", "action", "address", "size", "stream"};

enum class Meaning { Allocate, Free, Nothing, Unknown };

// A block that is still in use by another stream is live after free_requested. What PyTorch's own
// allocator asks of the driver (segment_...) is of no meaning to another allocator.
Meaning meaning_of(std::string_view action) {
  if (action == "alloc") return Meaning::Allocate;
  if (action == "free_completed") return Meaning::Free;
  if (action == "free_requested" || action == "snapshot" || action == "oom" ||
      action == "workspace_snapshot" || action.starts_with("segment_")) {
    return Meaning::Nothing;
  }
  return Meaning::Unknown;
}

}  // namespace

bool is_pytorch_history(std::string_view head) {
  return Columns::find(head, names).has_value();
}

Result<ReplayTrace> read_pytorch_history(TextLines& lines, std::string_view head) {
  const auto columns = Columns::find(head, names);
  if (!columns) return lines.error("a column is missing");
  TraceBuilder builder;
  std::string_view line;
  while (TRY(lines.next(line))) {
    if (line.empty()) continue;
    const auto values = columns->values(line);
    if (!values) return lines.error("not as many fields as the first line has");
    const auto& [time, action, address, size, stream] = *values;
    const Meaning meaning = meaning_of(action);
    if (meaning == Meaning::Nothing) continue;
    if (meaning == Meaning::Unknown) return lines.error("no action is called " + quoted(action));

    const auto time_us = read_decimal(time);
    const auto at = read_pointer(address);
    const auto bytes = read_decimal(size);
    const auto stream_name = read_stream(stream);
    if (!time_us) return lines.error("time_us is no number: " + quoted(time));
    if (!at) return lines.error("address is no hexadecimal number: " + quoted(address));
    if (!bytes) return lines.error("size is no number: " + quoted(size));
    if (!stream_name) return lines.error("stream is no number: " + quoted(stream));
    if (meaning == Meaning::Free) {
      builder.free(*time_us, *at);
      continue;
    }
    if (builder.is_live(*at)) return lines.error("allocated again while it is live");
    builder.allocate({.time_us = *time_us, .address = *at, .size = *bytes, .stream = *stream_name});
  }
  return builder.finish();
}

}  // namespace cuvmm::replay
