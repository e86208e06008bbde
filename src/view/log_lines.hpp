// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trace/record.hpp"

namespace cuvmm::view {

// Parses log lines back into records (docs/internals/log_format.md).
class LogLines {
 public:
  LogLines();

  struct Line {
    std::uint64_t process = 0;
    std::optional<TraceRecord> event;  // its time is on the log's clock; none: a message
  };
  // Nothing if the line is not from cuvmm.
  std::optional<Line> read(std::string_view line) const;

 private:
  struct Keys {
    TraceEvent event;
    std::string_view of_fields;  // address, size, stream, other, detail
  };
  std::map<std::string, Keys, std::less<>> events_;  // by the event's name in the line
};

}  // namespace cuvmm::view
