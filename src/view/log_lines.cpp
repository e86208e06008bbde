// SPDX-License-Identifier: Apache-2.0
#include "view/log_lines.hpp"

#include <cctype>
#include <charconv>

#include "base/text.hpp"

namespace cuvmm::view {
namespace {

struct EventRow {
  TraceEvent event;
  const char* name;
  const char* keys;
};
constexpr EventRow rows[] = {
#define CUVMM_TRACE_EVENT(name, number, when, address, size, stream, other, detail, keys) \
  {TraceEvent::name, #name, keys},
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
};

// copy_elided for CopyElided
std::string word_of(std::string_view name) {
  std::string word;
  for (const char letter : name) {
    if (std::isupper(static_cast<unsigned char>(letter)) != 0 && !word.empty()) word += '_';
    word += lower(letter);
  }
  return word;
}

std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  const bool is_hexadecimal = text.starts_with("0x");
  if (is_hexadecimal) text.remove_prefix(2);
  std::uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, is_hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Parses a key of why_run.def, or a number without a key.
std::optional<std::uint64_t> why_run_in(std::string_view text) {
#define CUVMM_WHY_RUN(name, number, key, words) \
  if (text == key) return number;
#include "base/why_run.def"
#undef CUVMM_WHY_RUN
  return number_in(text);
}

// "12.345" microseconds, as ns.
std::optional<std::uint64_t> microseconds_in(std::string_view text) {
  const std::size_t point = text.find('.');
  const auto whole = number_in(text.substr(0, point));
  if (!whole || point == std::string_view::npos)
    return whole ? std::optional{*whole * 1000} : whole;
  const auto rest = number_in(text.substr(point + 1));
  return rest ? std::optional{*whole * 1000 + *rest} : std::nullopt;
}

void put(TraceRecord& record, int field, std::uint64_t value) {
  switch (field) {
    case 0:
      record.address = value;
      break;
    case 1:
      record.size = value;
      break;
    case 2:
      record.stream = value;
      break;
    case 3:
      record.other = value;
      break;
    default:
      record.detail = static_cast<std::uint32_t>(value);
  }
}

// Takes the pair if it is one of the event's own fields and has a valid value.
bool take_own_pair(TraceRecord& record, std::string_view of_fields, std::string_view key,
                   std::string_view value) {
  for (int field = 0; field < 5; ++field) {
    std::string_view wanted = take_word(of_fields);
    const bool is_time = wanted.starts_with('~');
    const bool is_why = wanted.starts_with('?');
    if (is_time || is_why || wanted.starts_with('@')) wanted.remove_prefix(1);
    if (is_time ? !key.ends_with("_us") || key.substr(0, key.size() - 3) != wanted
                : key != wanted) {
      continue;
    }
    const auto number = is_time  ? microseconds_in(value)
                        : is_why ? why_run_in(value)
                                 : number_in(value);
    if (number) put(record, field, *number);
    return number.has_value();
  }
  return false;
}

void take_common_pair(TraceRecord& record, std::string_view key, std::string_view value) {
  const auto number = number_in(value);
  if (!number) return;
  if (key == "device") record.device = static_cast<std::int16_t>(*number);
  if (key == "context") record.context = static_cast<std::uint32_t>(*number);
  if (key == "result") record.result = static_cast<std::int16_t>(*number);
  if (key == "marks") record.flags = static_cast<std::uint16_t>(*number);
}

}  // namespace

LogLines::LogLines() {
  for (const EventRow& row : rows) {
    events_.emplace(word_of(row.name), Keys{row.event, std::string_view{row.keys}});
  }
}

// cuvmm[4711] INFO 81234567 map address=0x7f2000000000 size=2097152
std::optional<LogLines::Line> LogLines::read(std::string_view line) const {
  std::string_view speaker = take_word(line);
  constexpr std::string_view we = "cuvmm[";
  if (!speaker.starts_with(we) || !speaker.ends_with(']')) return std::nullopt;
  speaker.remove_prefix(we.size());
  speaker.remove_suffix(1);
  const auto process = number_in(speaker);
  const std::string_view level = take_word(line);
  const auto time = number_in(take_word(line));
  if (!process || !time ||
      (level != "ERROR" && level != "WARNING" && level != "INFO" && level != "DEBUG")) {
    return std::nullopt;
  }
  Line read{.process = *process, .event = {}};
  const auto keys = events_.find(take_word(line));
  if (keys == events_.end()) return read;
  TraceRecord record{.time = *time * 1000, .event = keys->second.event};
  while (!line.empty()) {
    const std::string_view pair = take_word(line);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (!take_own_pair(record, keys->second.of_fields, key, value)) {
      take_common_pair(record, key, value);
    }
  }
  read.event = record;
  return read;
}

}  // namespace cuvmm::view
