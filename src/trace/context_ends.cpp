// SPDX-License-Identifier: Apache-2.0
#include "trace/context_ends.hpp"

namespace cuvmm {

std::uint32_t ContextEnds::ended_by(const TraceRecord& record) {
  constexpr std::uint32_t green = 1;  // shares the memory of its device's primary context
  if (record.result != 0) return 0;
  switch (record.event) {
    case TraceEvent::ContextDestroy:
      return record.detail == green ? 0 : record.context;
    case TraceEvent::PrimaryRetain: {
      Primary& primary = primaries_[record.device];
      primary.context = record.context;
      ++primary.retained;
      return 0;
    }
    case TraceEvent::PrimaryRelease: {
      Primary& primary = primaries_[record.device];
      if (primary.retained > 0 && --primary.retained > 0) return 0;
      return primary.context;
    }
    case TraceEvent::PrimaryReset:
      return primaries_[record.device].context;
    default:
      return 0;
  }
}

}  // namespace cuvmm
