// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trace/record.hpp"

namespace cuvmm::view {

// Lines of a log turned back into the records that they tell of (docs/log_format.md).
class LogLines {
 public:
  LogLines();

  struct Line {
    std::uint64_t process = 0;
    std::optional<TraceRecord> event;  // with the time of the log's clock; none: a note for the reader
  };
  // Nothing where the line is no line of ours.
  std::optional<Line> read(std::string_view line) const;

 private:
  struct Keys {
    TraceEvent event;
    std::string_view of_fields;  // address, size, stream, other, detail
  };
  std::map<std::string, Keys, std::less<>> events_;  // by the line's word
};

}  // namespace cuvmm::view
