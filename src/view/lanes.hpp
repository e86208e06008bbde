// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "view/picture.hpp"

namespace cuvmm::view {

// Who did how much when: by client if the scheduler had any, otherwise by stream.
class Lanes {
 public:
  // Whether the record starts an operation of a client or a stream.
  static bool has_place_for(const TraceRecord& record);

  explicit Lanes(std::size_t columns) : columns_(columns) {}

  void add(const TraceRecord& record, std::size_t column);
  // The busiest lanes, at most twelve.
  std::vector<PictureLane> take(const TraceHeader& header, bool& are_clients) const;

 private:
  using Counts = std::map<std::uint64_t, std::vector<std::uint32_t>>;
  void count(Counts& counts, std::uint64_t whose, std::size_t column);

  std::size_t columns_;
  Counts by_client_;
  Counts by_stream_;
};

}  // namespace cuvmm::view
