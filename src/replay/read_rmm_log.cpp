// SPDX-License-Identifier: Apache-2.0
// Thread,Time,Action,Pointer,Size,Stream: the log of RMM's logging_resource_adaptor.
#include <optional>

#include "base/text.hpp"
#include "replay/csv.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::replay {
namespace {

using Columns = CsvColumns<5>;
constexpr Columns::Names names{"Time", "Action", "Pointer", "Size", "Stream"};
constexpr std::string_view thread_column = "Thread";

constexpr std::uint64_t second_us = 1'000'000;
constexpr std::uint64_t day_us = 24 * 60 * 60 * second_us;

// "14:03:59.123456" or "14:03:59:123456" as microseconds since midnight.
std::optional<std::uint64_t> time_of_day(std::string_view text) {
  std::uint64_t seconds = 0;
  for (const std::uint64_t most : {23, 59, 60}) {
    if (most != 23) {
      if (!text.starts_with(':')) return {};
      text.remove_prefix(1);
    }
    const auto part = take_whole_number(text);
    if (!part || *part > most) return {};
    seconds = seconds * 60 + *part;
  }
  if (text.empty()) return seconds * second_us;
  if (text.front() != '.' && text.front() != ':') return {};
  text.remove_prefix(1);
  std::uint64_t fraction_us = 0;
  for (std::uint64_t place = second_us / 10; !text.empty() && is_digit(text.front());
       text.remove_prefix(1), place /= 10) {
    fraction_us += static_cast<std::uint64_t>(text.front() - '0') * place;
  }
  if (!text.empty()) return {};
  return seconds * second_us + fraction_us;
}

// The log records the time of day, which restarts at midnight.
class Clock {
 public:
  std::uint64_t since_first(std::uint64_t of_day) {
    if (!first_) first_ = last_ = of_day;
    if (of_day + day_us / 2 < last_) days_ += 1;
    last_ = of_day;
    const std::uint64_t now = days_ * day_us + of_day;
    return now > *first_ ? now - *first_ : 0;
  }

 private:
  std::optional<std::uint64_t> first_;
  std::uint64_t last_ = 0;
  std::uint64_t days_ = 0;
};

}  // namespace

bool is_rmm_log(std::string_view head) {
  return head.starts_with(thread_column) && Columns::find(head, names).has_value();
}

Result<ReplayTrace> read_rmm_log(TextLines& lines, std::string_view head) {
  const auto columns = Columns::find(head, names);
  if (!columns) return lines.error("a column is missing");
  TraceBuilder builder;
  Clock clock;
  std::string_view line;
  while (TRY(lines.next(line))) {
    if (line.empty()) continue;
    const auto values = columns->values(line);
    if (!values) return lines.error("not as many fields as the first line has");
    const auto& [time, action, pointer, size, stream] = *values;
    const bool is_free = action == "free";
    const bool is_refused = action == "allocate failure";
    if (!is_free && !is_refused && action != "allocate") {
      return lines.error("no action is called " + quoted(action));
    }

    const auto of_day = time_of_day(time);
    const auto at = read_pointer(pointer);
    const auto bytes = read_decimal(size);
    const auto stream_name = read_stream(stream);
    if (!of_day) return lines.error("Time is not a time of day: " + quoted(time));
    if (!at) return lines.error("Pointer is not an address: " + quoted(pointer));
    if (!bytes) return lines.error("Size is not a number: " + quoted(size));
    if (*bytes > most_recorded_bytes) return lines.error("Size is out of range: " + quoted(size));
    if (!stream_name) return lines.error("Stream is not a stream: " + quoted(stream));
    const std::uint64_t time_us = clock.since_first(*of_day);
    if (is_refused) {
      builder.refuse({.time_us = time_us, .size = *bytes, .stream = *stream_name}, {});
      continue;
    }
    if (*at == 0) continue;  // a request for no bytes
    if (is_free) {
      builder.free(time_us, *at);
      continue;
    }
    if (builder.is_live(*at)) return lines.error("allocated again while it is live");
    builder.allocate({.time_us = time_us, .address = *at, .size = *bytes, .stream = *stream_name});
  }
  return builder.finish(Source::RmmLog);
}

}  // namespace cuvmm::replay
