// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/slot_order.hpp"

#include <numeric>
#include <utility>

namespace cuvmm {
namespace {

// Block t of chunk j is block j * count + t overall, and takes slot t + j * turn of the order. So
// for one slot, the block's number grows by count - turn from chunk to chunk. If that step is
// divisible by neither 2 nor 3, all remainders occur equally often.
Size turn_between_chunks(Size count) {
  Size turn = 0;
  while (std::gcd(count + SlotOrder::chunks_alike - turn, SlotOrder::chunks_alike) != 1) ++turn;
  return turn;
}

}  // namespace

SlotOrder::SlotOrder(std::uint64_t seed, std::uint64_t chunk, Size slot_count) {
  RandomNumbers numbers{seed ^ (chunk / chunks_alike)};
  seed_ = static_cast<std::uint32_t>(numbers.next());
  turn_ = static_cast<std::uint32_t>(chunk % chunks_alike * turn_between_chunks(slot_count));
}

std::vector<std::uint16_t> SlotOrder::slots(Size slot_count) const {
  std::vector<std::uint16_t> order(slot_count);
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  RandomNumbers numbers{seed_};
  for (Size left = slot_count; left > 1; --left) {
    std::swap(order[left - 1], order[numbers.below(left)]);
  }
  std::vector<std::uint16_t> turned(slot_count);
  for (Size i = 0; i < slot_count; ++i) turned[i] = order[(i + turn_) % slot_count];
  return turned;
}

}  // namespace cuvmm
