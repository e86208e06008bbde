// SPDX-License-Identifier: Apache-2.0
#include "view/mapped_memory.hpp"

#include <iterator>

namespace cuvmm::view {

const MappedMemory::Piece* MappedMemory::at(std::uint64_t address) const {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return nullptr;
  const Piece& piece = std::prev(after)->second;
  return piece.span.end > address ? &piece : nullptr;
}

void MappedMemory::cut_at(std::uint64_t address) {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return;
  Piece& piece = std::prev(after)->second;
  if (piece.span.begin >= address || piece.span.end <= address) return;
  Piece upper = piece;
  upper.span.begin = address;
  piece.span.end = address;
  pieces_.emplace(address, upper);
}

}  // namespace cuvmm::view
