// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "base/size.hpp"
#include "trace/header.hpp"
#include "trace/record.hpp"

namespace cuvmm::cli {

// The last figures in the trace of each arena and of each context's windows.
class ArenaSummary {
 public:
  void add(const TraceRecord& record);

  // Adds "arenas": [...] if there were any.
  void add_to(const TraceHeader& header, nlohmann::json& object) const;
  void print(const TraceHeader& header) const;

 private:
  struct Figures {
    int device = 0;
    Size used = 0;
    Size free = 0;
    Size moved = 0;
    Size compacted = 0;

    Size held() const { return used + free; }
    Figures& operator+=(const Figures& other);
  };
  std::map<std::uint32_t, Figures> arenas_;
};

}  // namespace cuvmm::cli
