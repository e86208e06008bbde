// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "trace/record.hpp"

namespace cuvmm {

// Determines which contexts end where in a trace: their blocking memory ends with them, without
// Free records. Records must be given in time order.
class ContextEnds {
 public:
  // The context that ends with this record; 0: none.
  std::uint32_t ended_by(const TraceRecord& record);

 private:
  struct Primary {
    std::uint32_t context = 0;
    int retained = 0;
  };
  std::map<std::int16_t, Primary> primaries_;  // by device
};

}  // namespace cuvmm
