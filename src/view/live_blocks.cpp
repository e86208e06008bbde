// SPDX-License-Identifier: Apache-2.0
#include "view/live_blocks.hpp"

#include <utility>

namespace cuvmm::view {
namespace {

constexpr std::size_t first_size = 1024;

// Mixes all bits into the low ones: addresses end in zeros.
std::uint64_t mix(std::uint64_t address) {
  address ^= address >> 32;
  address *= 0x9E3779B97F4A7C15U;
  return address ^ (address >> 29);
}

}  // namespace

LiveBlocks::LiveBlocks() : table_(first_size) {}

// The slot of the address, or the one where it would be inserted.
std::size_t LiveBlocks::place_of(std::uint64_t address) const {
  std::size_t place = mix(address) & (table_.size() - 1);
  while (table_[place].address != 0 && table_[place].address != address) place = next(place);
  return place;
}

void LiveBlocks::add(const LiveBlock& block) {
  if (2 * (count_ + 1) > table_.size()) grow();
  table_[place_of(block.address)] = block;
  ++count_;
}

const LiveBlock* LiveBlocks::find(std::uint64_t address) const {
  if (address == 0) return nullptr;
  const LiveBlock& block = table_[place_of(address)];
  return block.address == 0 ? nullptr : &block;
}

// Moves displaced entries behind the hole up, so that no search stops at it.
std::optional<LiveBlock> LiveBlocks::take(std::uint64_t address) {
  if (address == 0) return std::nullopt;
  std::size_t hole = place_of(address);
  if (table_[hole].address == 0) return std::nullopt;
  const LiveBlock taken = table_[hole];
  for (std::size_t at = next(hole); table_[at].address != 0; at = next(at)) {
    const std::size_t wanted = mix(table_[at].address) & (table_.size() - 1);
    const std::size_t mask = table_.size() - 1;
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = {};
  --count_;
  return taken;
}

void LiveBlocks::grow() {
  std::vector<LiveBlock> before(2 * table_.size());
  std::swap(before, table_);
  for (const LiveBlock& block : before) {
    if (block.address != 0) table_[place_of(block.address)] = block;
  }
}

}  // namespace cuvmm::view
