// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "vmm/stretch.hpp"

namespace cuvmm {

// Determines which chunks can be emptied, and to which chunk each of their pieces goes, at the same
// offset.
//
// Pieces that overlap need different chunks, as neighbours on a map need different colours. So the
// minimum number of chunks is the largest number of pieces over any one offset. If all pieces keep
// to the same slots, that minimum is reached. Knows nothing of blocks or the driver.
class Colouring {
 public:
  using Index = std::uint32_t;
  enum class Role : std::uint8_t {
    MayGo,  // can be emptied
    Stays,  // can only take pieces
  };

  explicit Colouring(Size granule);

  Index add_chunk(Role role);
  // Marks bytes of that chunk as taken. Pieces of one chunk must not overlap.
  Index add_piece(Index chunk, Stretch where);

  // Empties up to `most` more chunks, those with the fewest pieces first: remapping a piece takes
  // longer than copying it. Returns how many.
  std::size_t empty(std::size_t most);

  // The chunks in the order in which to empty them: then each piece goes straight to its final
  // chunk.
  const std::vector<Index>& emptied() const { return emptied_; }
  Index chunk_of(Index piece) const { return pieces_[piece].at; }

 private:
  static constexpr Index none = std::numeric_limits<Index>::max();
  static constexpr Size step = 512;
  static constexpr Size bits_a_word = 64;

  struct Chunk {
    Role role;
    bool is_empty = false;
    Index first = none;  // its first piece
    Index pieces = 0;
    Size bytes = 0;
  };
  struct Piece {
    std::uint32_t begin;  // in steps
    std::uint32_t end;
    Index at;
    Index next = none;  // next piece in the same chunk
    Size bytes() const { return Size{end - begin} * step; }
  };
  // A search for room for a piece of one shape, among the chunks of one group.
  struct Search {
    std::uint64_t shape;
    Index group;
    friend bool operator==(const Search&, const Search&) = default;
  };
  struct SearchHash {
    std::size_t operator()(const Search& search) const noexcept {
      return (search.shape ^ std::uint64_t{search.group} << 17) * 0x9E3779B97F4A7C15u >> 13;
    }
  };

  void put_in_order();
  void find_targets();
  void choose_groups();
  bool try_to_empty(Index position);
  Index find_goal(const Piece& piece, Index group);
  bool has_room(Index chunk, const Piece& piece) const;
  void put(Index piece, Index chunk);
  void take_back(const std::vector<Index>& leaving, const std::vector<Index>& next_before,
                 Index source);
  void set_bits(Index chunk, const Piece& piece, bool taken);
  std::uint64_t cells_within(const Piece& piece) const;
  static std::uint64_t shape_of(const Piece& piece) {
    return std::uint64_t{piece.begin} << 32 | piece.end;
  }

  const Size granule_;
  const Size words_;       // per chunk, one bit per step
  const Size cell_steps_;  // per cell, 64 cells per chunk
  std::vector<Chunk> chunks_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> taken_;  // exactly
  std::vector<Index> order_;          // cheapest first, those that stay last
  std::size_t next_ = 0;              // first position not yet tried
  // Those of `order_` that are not full, and which of a target's cells lie within one piece. A
  // search goes through nothing but these words.
  std::vector<Index> targets_;
  std::vector<std::uint64_t> cells_;
  std::vector<Index> target_of_;  // by chunk; none: it is full
  Index groups_ = 1;  // a position, here or in `order_`, belongs to the group p % groups_
  // How far each search has come: chunks of the group that rank higher will never have room.
  std::unordered_map<Search, Index, SearchHash> cursors_;
  std::vector<Index> emptied_;
};

}  // namespace cuvmm
