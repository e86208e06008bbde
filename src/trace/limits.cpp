// SPDX-License-Identifier: Apache-2.0
#include "trace/limits.hpp"

#include "base/text.hpp"

namespace cuvmm {

TraceLimits::TraceLimits(const TraceHeader& header) {
  if (!equal_in_any_case(header.mode, "vmm")) return;
  for (const TraceOption& option : header.options) {
    if (option.name != "VMM_LIMIT") continue;
    if (const auto limit = SizeLimit::parse(option.value)) option_ = *limit;
  }
}

void TraceLimits::add(const TraceRecord& record) {
  if (record.event == TraceEvent::Limit) set_[record.device] = record.size;
}

std::optional<Size> TraceLimits::of(std::int16_t device, Size memory) const {
  const auto set = set_.find(device);
  if (set == set_.end() && option_.is_none()) return {};
  const Size limit = set != set_.end() ? set->second : option_.of(memory);
  // A share of memory whose size is not known is 0.
  return limit == unlimited || limit == 0 ? std::optional<Size>{} : limit;
}

}  // namespace cuvmm
