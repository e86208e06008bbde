// SPDX-License-Identifier: Apache-2.0
// Pseudo-random choices that a seed determines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuvmm::order {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}

  // splitmix64
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
  int between(int first, int last) {
    return first + static_cast<int>(below(static_cast<std::size_t>(last - first) + 1));
  }
  bool percent(unsigned share) { return below(100) < share; }
  template <class Item>
  Item& one_of(std::vector<Item>& items) {
    return items[below(items.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace cuvmm::order
