// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>

#include "view/memory_walk.hpp"

namespace cuvmm::view {

// Which addresses have memory behind them, which chunk it is, and since when.
class MappedMemory {
 public:
  struct Piece {
    Span span;
    std::uint64_t chunk = 0;  // 0: several, or unknown
    std::uint64_t since = 0;
  };

  // Replaces existing mappings; calls `gone` for each piece removed.
  template <class Gone>
  void map(const Span& span, std::uint64_t chunk, std::uint64_t time, Gone&& gone) {
    unmap(span, gone);
    if (span.begin >= span.end) return;
    pieces_[span.begin] = {span, chunk, time};
    bytes_ += span.size();
  }
  template <class Gone>
  void unmap(const Span& span, Gone&& gone) {
    cut_at(span.begin);
    cut_at(span.end);
    auto at = pieces_.lower_bound(span.begin);
    while (at != pieces_.end() && at->first < span.end) {
      gone(at->second);
      bytes_ -= at->second.span.size();
      at = pieces_.erase(at);
    }
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [begin, piece] : pieces_) visit(piece);
  }
  // The piece at the address, or nullptr.
  const Piece* at(std::uint64_t address) const;

  Size bytes() const { return bytes_; }

 private:
  void cut_at(std::uint64_t address);

  std::map<std::uint64_t, Piece> pieces_;  // by begin
  Size bytes_ = 0;
};

}  // namespace cuvmm::view
