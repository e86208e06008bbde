// SPDX-License-Identifier: Apache-2.0
#include "trace/record.hpp"

#include <algorithm>
#include <cstring>

namespace cuvmm {
namespace {

struct EventRow {
  const char* name;
  TraceEvent event;
  const char* when;
  const char* address;
  const char* size;
  const char* stream;
  const char* other;
  const char* detail;
};

constexpr EventRow rows[] = {
#define CUVMM_TRACE_EVENT(name, number, when, address, size, stream, other, detail, keys) \
  {#name, TraceEvent::name, when, address, size, stream, other, detail},
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
};

constexpr std::size_t text_begins = offsetof(TraceRecord, address);
constexpr std::size_t longest_note = sizeof(TraceRecord) - text_begins;
constexpr std::size_t longest_thread_name = 16;

std::string text_of(const TraceRecord& record, std::size_t longest) {
  const char* text = reinterpret_cast<const char*>(&record) + text_begins;
  return {text, ::strnlen(text, longest)};
}

}  // namespace

const char* name_of(TraceEvent event) {
  for (const EventRow& row : rows) {
    if (row.event == event) return row.name;
  }
  return nullptr;
}

std::string describe_trace_events() {
  std::string text =
      "| Number | Event | When | address | size | stream | other | detail |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const EventRow& row : rows) {
    text += "| " + std::to_string(static_cast<int>(row.event)) + " | `" + row.name + "`";
    for (const char* cell : {row.when, row.address, row.size, row.stream, row.other, row.detail}) {
      text += std::string(" | ") + (*cell != '\0' ? cell : "–");
    }
    text += " |\n";
  }
  return text;
}

TraceRecord trace_note(std::string_view text) {
  TraceRecord record{.event = TraceEvent::Note};
  std::memcpy(reinterpret_cast<char*>(&record) + text_begins, text.data(),
              std::min(text.size(), longest_note));
  return record;
}

std::string note_of(const TraceRecord& record) {
  return text_of(record, longest_note);
}

std::string thread_of(const TraceRecord& record) {
  return text_of(record, longest_thread_name);
}

}  // namespace cuvmm
