// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "alloc/allocation_map.hpp"
#include "alloc/bit_line.hpp"

namespace cuvmm {

// The allocations that begin within 2 MiB of addresses: a small hash table, and where there are
// many, a line of bits that says where. A record that lies elsewhere by now is as good as none.
// Tables only grow, and an old one stays for those who are reading it: all of them together are
// less than twice the last.
class AllocationMap::Granule {
 public:
  explicit Granule(CUdeviceptr address) : base_(address) {}

  // One thread at a time.
  void add(Allocation& allocation);
  // Nothing begins any more in [begin, end), addresses of this granule.
  void forget(CUdeviceptr begin, CUdeviceptr end);

  // Any thread.
  std::optional<Found> find_start(CUdeviceptr address) const;
  // The one with the highest start at or below the address, which is not below the granule.
  std::optional<Found> last_before(CUdeviceptr address) const;

 private:
  static constexpr Size step = 512;
  static constexpr std::size_t steps = (Size{1} << granule_bits) / step;
  static constexpr std::size_t first_capacity = 4;
  static constexpr std::size_t few = 32;

  using Slot = std::atomic<Allocation*>;
  struct Table {
    explicit Table(std::size_t slot_count)
        : capacity(slot_count), slots(std::make_unique<Slot[]>(slot_count)) {
      if (capacity > few) starts = std::make_unique<BitLine<steps>>();
    }
    const std::size_t capacity;  // a power of two
    const std::unique_ptr<Slot[]> slots;
    std::unique_ptr<BitLine<steps>> starts;  // nullptr while there are few
    std::size_t used = 0;
  };

  static std::size_t step_of(CUdeviceptr address) { return (address / step) % steps; }
  bool is_within(CUdeviceptr address) const {
    return address >> granule_bits == base_ >> granule_bits;
  }
  void put(Table& table, Allocation& allocation) const;
  Table& table_with_room();
  static std::optional<Found> find_in(const Table& table, CUdeviceptr address);

  const CUdeviceptr base_;
  std::atomic<Table*> table_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace cuvmm
