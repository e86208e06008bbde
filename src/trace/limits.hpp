// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>

#include "base/size.hpp"
#include "trace/header.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// The limits on the devices' memory during a trace. Without serving, nothing obeys a limit.
class TraceLimits {
 public:
  explicit TraceLimits(const TraceHeader& header);

  // Add the records in the order of time.
  void add(const TraceRecord& record);
  // The device's limit now; nullopt: none. `memory`: of the device; 0: not known.
  std::optional<Size> of(std::int16_t device, Size memory) const;

 private:
  SizeLimit option_ = SizeLimit::none();  // VMM_LIMIT, until the device's first Limit event
  std::map<std::int16_t, Size> set_;
};

}  // namespace cuvmm
