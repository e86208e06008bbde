// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/size.hpp"
#include "trace/record.hpp"

namespace cuvmm::view {

// A block of device memory that a program holds, or held.
struct LiveBlock {
  std::uint64_t address = 0;
  Size requested = 0;
  Size granted = 0;
  std::uint64_t began = 0;  // ns
  std::uint64_t stream = 0;
  std::uint32_t context = 0;
  std::uint32_t thread = 0;
  std::uint16_t flags = 0;
  std::uint16_t client = 0;
  std::int16_t device = no_device;

  bool is_native() const { return (flags & trace_flag::native) != 0; }
  bool is_stream_ordered() const { return (flags & trace_flag::stream_ordered) != 0; }
  std::uint64_t end() const { return address + granted; }
};

// The blocks held at one moment, by address. A trace can have ten million blocks, so this is a
// single open-addressing hash table.
class LiveBlocks {
 public:
  LiveBlocks();

  // The block's address must not be 0 and must not be held already.
  void add(const LiveBlock& block);
  std::optional<LiveBlock> take(std::uint64_t address);
  const LiveBlock* find(std::uint64_t address) const;
  std::size_t count() const { return count_; }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const LiveBlock& block : table_) {
      if (block.address != 0) visit(block);
    }
  }

 private:
  std::size_t place_of(std::uint64_t address) const;
  std::size_t next(std::size_t place) const { return (place + 1) & (table_.size() - 1); }
  void grow();

  std::vector<LiveBlock> table_;  // a power of two, at most half full; address 0: empty
  std::size_t count_ = 0;
};

}  // namespace cuvmm::view
