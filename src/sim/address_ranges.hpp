// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/size.hpp"

namespace cuvmm::sim {

// The free addresses of a range: first fit, lowest address first, neighbours merged.
class AddressRanges {
 public:
  AddressRanges(std::uint64_t begin, Size size) { free_.emplace(begin, size); }

  // Returns no address below `from`.
  std::optional<std::uint64_t> take(Size size, Size alignment, std::uint64_t from = 0);
  bool take_at(std::uint64_t address, Size size);
  void give_back(std::uint64_t address, Size size);

 private:
  using Free = std::map<std::uint64_t, Size>;
  void cut(Free::iterator range, std::uint64_t address, Size size);
  Free free_;
};

}  // namespace cuvmm::sim
