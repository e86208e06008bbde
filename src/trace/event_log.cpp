// SPDX-License-Identifier: Apache-2.0
#include "trace/event_log.hpp"

#include <algorithm>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

struct EventWords {
  TraceEvent event;
  const char* name;
  std::string_view keys;
};

constexpr EventWords words[] = {
#define CUVMM_TRACE_EVENT(name, number, when, address, size, stream, other, detail, keys) \
  {TraceEvent::name, #name, keys},
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
};

const EventWords* words_of(TraceEvent event) {
  const auto* found = std::find_if(std::begin(words), std::end(words),
                                   [&](const EventWords& row) { return row.event == event; });
  return found != std::end(words) ? found : nullptr;
}

// nullptr for an unknown number.
const char* key_of_why_run(std::uint64_t number) {
  switch (number) {
#define CUVMM_WHY_RUN(name, number, key, words) \
  case number:                                  \
    return key;
#include "base/why_run.def"
#undef CUVMM_WHY_RUN
    default:
      return nullptr;
  }
}

// Text that is truncated when the buffer is full.
class Line {
 public:
  explicit Line(EventText& into) : into_(into) { into_.text[0] = '\0'; }

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    const int more =
        std::vsnprintf(into_.text + used_, sizeof into_.text - used_, format, arguments);
    va_end(arguments);
    if (more > 0) used_ = std::min(used_ + static_cast<std::size_t>(more), sizeof into_.text - 1);
  }

  // copy_elided for CopyElided
  void add_name(const char* name) {
    for (const char* letter = name; *letter != '\0'; ++letter) {
      const bool begins_word = letter != name && std::isupper(*letter) != 0;
      add(begins_word ? "_%c" : "%c", std::tolower(*letter));
    }
  }

  void add_pair(std::string_view key, std::uint64_t value, bool even_if_zero) {
    if (key == "-" || (value == 0 && !even_if_zero)) return;
    const int length = static_cast<int>(key.size());
    const auto number = static_cast<unsigned long long>(value);
    if (key.front() == '?') {
      if (const char* const word = key_of_why_run(value)) {
        return add(" %.*s=%s", length - 1, key.data() + 1, word);
      }
      return add_pair(key.substr(1), value, even_if_zero);
    }
    if (key.front() == '@') {
      add(" %.*s=0x%llx", length - 1, key.data() + 1, number);
    } else if (key.front() == '~') {
      add(" %.*s_us=%llu.%03llu", length - 1, key.data() + 1, number / 1000, number % 1000);
    } else {
      add(" %.*s=%llu", length, key.data(), number);
    }
  }

 private:
  EventText& into_;
  std::size_t used_ = 0;
};

std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::atomic<NameOfCall> name_of_logged_call{nullptr};

}  // namespace

Severity severity_of(TraceEvent event) {
  const auto number = static_cast<int>(event);
  const bool changes_memory = number < static_cast<int>(TraceEvent::Limit) ||
                              event == TraceEvent::CopyElided || event == TraceEvent::Resize ||
                              event == TraceEvent::Pause || event == TraceEvent::Resume;
  return changes_memory ? Severity::Info : Severity::Debug;
}

EventText describe(const TraceRecord& event, NameOfCall name_of_call) {
  EventText result;
  Line line{result};
  const EventWords* known = words_of(event.event);
  if (known == nullptr) {
    line.add("event number=%u", static_cast<unsigned>(event.event));
    return result;
  }
  line.add_name(known->name);
  if (event.event == TraceEvent::Note) {
    line.add(" %.32s", reinterpret_cast<const char*>(&event.address));
    return result;
  }
  std::string_view keys = known->keys;
  line.add_pair(take_word(keys), event.address, true);
  line.add_pair(take_word(keys), event.size, true);
  line.add_pair(take_word(keys), event.stream, false);
  line.add_pair(take_word(keys), event.other, false);
  line.add_pair(take_word(keys), event.detail, false);
  if (event.device != no_device) line.add(" device=%d", event.device);
  line.add_pair("context", event.context, false);
  const char* call = name_of_call != nullptr ? name_of_call(event.call) : nullptr;
  if (call != nullptr) line.add(" call=%s", call);
  if (event.result != 0) line.add(" result=%d", event.result);
  if (event.flags != 0) line.add(" marks=0x%x", static_cast<unsigned>(event.flags));
  return result;
}

std::string describe_event_lines() {
  std::string text = "| Line | Level | Pairs of its own |\n|---|---|---|\n";
  for (const EventWords& row : words) {
    EventText name;
    Line{name}.add_name(row.name);
    text += std::string{"| `"} + name.text + "` | " +
            (severity_of(row.event) == Severity::Info ? "INFO" : "DEBUG") + " |";
    std::string_view keys = row.keys;
    while (!keys.empty()) {
      const std::string_view key = take_word(keys);
      if (key == "-") continue;
      const bool is_time = key.front() == '~';
      const bool is_marked = is_time || key.front() == '@' || key.front() == '?';
      const std::string_view bare = is_marked ? key.substr(1) : key;
      text += " `" + std::string{bare} + (is_time ? "_us" : "") + "`";
    }
    text += " |\n";
  }
  return text;
}

void log_events(NameOfCall name_of_call) {
  name_of_logged_call.store(name_of_call, std::memory_order_relaxed);
  if (is_logged(Severity::Info)) {
    detail::events_are_wanted.fetch_or(detail::wanted_by_log, std::memory_order_release);
  }
}

void detail::log_event(const TraceRecord& event) {
  const Severity severity = severity_of(event.event);
  if (!is_logged(severity)) return;
  const EventText line = describe(event, name_of_logged_call.load(std::memory_order_relaxed));
  write_log(severity, "%s", line.text);
}

}  // namespace cuvmm
