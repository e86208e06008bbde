// SPDX-License-Identifier: Apache-2.0
// time_us,action,address,size,stream: the history that torch.cuda.memory._record_memory_history()
// keeps.
#include <algorithm>

#include "replay/csv.hpp"
#include "replay/pytorch_actions.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::replay {
namespace {

using Columns = CsvColumns<5>;
constexpr Columns::Names names{"time_us", "action", "address", "size", "stream"};

using pytorch::Meaning;

}  // namespace

bool is_pytorch_history(std::string_view head) {
  return Columns::find(head, names).has_value();
}

Result<ReplayTrace> read_pytorch_history(TextLines& lines, std::string_view head) {
  const auto columns = Columns::find(head, names);
  if (!columns) return lines.error("a column is missing");
  TraceBuilder builder;
  std::optional<std::uint64_t> first_us;  // in PyTorch's snapshots, times count from 1970
  std::string_view line;
  while (TRY(lines.next(line))) {
    if (line.empty()) continue;
    const auto values = columns->values(line);
    if (!values) return lines.error("not as many fields as the first line has");
    const auto& [time, action, address, size, stream] = *values;
    const Meaning meaning = pytorch::meaning_of(action);
    if (meaning == Meaning::Nothing) continue;
    if (meaning == Meaning::Unknown) return lines.error("no action is called " + quoted(action));

    const auto since_us = read_decimal(time);
    const auto at = read_pointer(address);
    const auto bytes = read_decimal(size);
    const auto stream_name = read_stream(stream);
    if (!since_us) return lines.error("time_us is not a number: " + quoted(time));
    if (!at) return lines.error("address is not a hexadecimal number: " + quoted(address));
    if (!bytes) return lines.error("size is not a number: " + quoted(size));
    if (*bytes > most_recorded_bytes) return lines.error("size is out of range: " + quoted(size));
    if (!stream_name) return lines.error("stream is not a number: " + quoted(stream));
    if (!first_us) first_us = since_us;
    const std::uint64_t time_us = *since_us - std::min(*since_us, *first_us);
    if (meaning == Meaning::Take || meaning == Meaning::GiveBack) {
      if (action == "segment_map") builder.is_expandable();
      const auto size_taken = static_cast<std::int64_t>(*bytes);
      builder.reserve(meaning == Meaning::Take ? size_taken : -size_taken);
      continue;
    }
    if (meaning == Meaning::Refused) {
      builder.refuse({.time_us = time_us, .size = *bytes, .stream = *stream_name}, {});
      continue;
    }
    if (meaning == Meaning::Free) {
      builder.free(time_us, *at);
      continue;
    }
    if (builder.is_live(*at)) return lines.error("allocated again while it is live");
    builder.allocate({.time_us = time_us, .address = *at, .size = *bytes, .stream = *stream_name});
  }
  return builder.finish(Source::PytorchTable);
}

}  // namespace cuvmm::replay
