// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/colouring.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace cuvmm {
namespace {

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

// Bits [begin, end) of a word; the range must not be empty.
std::uint64_t ones(Size begin, Size end) {
  return (end == 64 ? all_ones : (std::uint64_t{1} << end) - 1) & (all_ones << begin);
}

// Calls `visit(word, mask)` for each word with bits of [begin, end), while it returns true.
template <class Visit>
bool for_each_word(Size begin, Size end, Visit visit) {
  for (Size word = begin / 64; word * 64 < end; ++word) {
    const Size first = std::max(begin, word * 64) - word * 64;
    const Size last = std::min(end, word * 64 + 64) - word * 64;
    if (!visit(word, ones(first, last))) return false;
  }
  return true;
}

}  // namespace

Colouring::Colouring(Size granule)
    : granule_(granule),
      words_((granule / step + bits_a_word - 1) / bits_a_word),
      cell_steps_(std::max<Size>(1, granule / step / bits_a_word)) {}

Colouring::Index Colouring::add_chunk(Role role) {
  chunks_.push_back({.role = role});
  taken_.resize(chunks_.size() * words_);
  order_.clear();
  return static_cast<Index>(chunks_.size() - 1);
}

Colouring::Index Colouring::add_piece(Index chunk, Stretch where) {
  order_.clear();
  pieces_.push_back({.begin = static_cast<std::uint32_t>(where.offset / step),
                     .end = static_cast<std::uint32_t>(where.end() / step),
                     .at = chunk});
  const auto added = static_cast<Index>(pieces_.size() - 1);
  put(added, chunk);
  return added;
}

void Colouring::put_in_order() {
  order_.resize(chunks_.size());
  std::iota(order_.begin(), order_.end(), Index{0});
  const auto cost = [this](Index chunk) {
    return std::tuple{chunks_[chunk].role, chunks_[chunk].pieces, chunks_[chunk].bytes, chunk};
  };
  std::sort(order_.begin(), order_.end(), [&](Index a, Index b) { return cost(a) < cost(b); });
  next_ = 0;
  cursors_.clear();
  find_targets();
  choose_groups();
}

// A full chunk cannot take a piece, and once it is emptied it must not. When memory is short, most
// chunks are full.
void Colouring::find_targets() {
  targets_.clear();
  target_of_.assign(chunks_.size(), none);
  for (const Index chunk : order_) {
    if (chunks_[chunk].bytes == granule_ || chunks_[chunk].is_empty) continue;
    target_of_[chunk] = static_cast<Index>(targets_.size());
    targets_.push_back(chunk);
  }
  cells_.assign(targets_.size(), 0);
  for (const Piece& piece : pieces_) {
    if (target_of_[piece.at] != none) cells_[target_of_[piece.at]] |= cells_within(piece);
  }
}

// A search that fails has examined every chunk, once for each shape of piece. If there are too many
// of both, a chunk's pieces go only to chunks of its own group. Each group has the same share of
// full and of nearly empty chunks, so little is lost.
void Colouring::choose_groups() {
  constexpr Size most_looks = 400'000'000;
  const auto looks = [this](Size shapes) { return shapes * targets_.size(); };
  groups_ = 1;
  if (looks(pieces_.size()) <= most_looks) return;
  std::unordered_set<std::uint64_t> shapes;
  for (const Piece& piece : pieces_) shapes.insert(shape_of(piece));
  groups_ = static_cast<Index>(1 + looks(shapes.size()) / most_looks);
}

std::size_t Colouring::empty(std::size_t most) {
  if (order_.empty()) put_in_order();
  const std::size_t before = emptied_.size();
  for (; next_ < order_.size() && emptied_.size() - before < most; ++next_) {
    const Index chunk = order_[next_];
    if (chunks_[chunk].role == Role::Stays) break;
    if (!chunks_[chunk].is_empty && try_to_empty(static_cast<Index>(next_))) {
      chunks_[chunk].is_empty = true;
      if (target_of_[chunk] != none) cells_[target_of_[chunk]] = all_ones;
      emptied_.push_back(chunk);
    }
  }
  return emptied_.size() - before;
}

bool Colouring::try_to_empty(Index position) {
  const Index source = order_[position];
  std::vector<Index> leaving;
  for (Index piece = chunks_[source].first; piece != none; piece = pieces_[piece].next) {
    leaving.push_back(piece);
  }
  // Longest first, because the longest piece is the likeliest to find no room.
  std::sort(leaving.begin(), leaving.end(), [this](Index a, Index b) {
    return std::pair{pieces_[b].bytes(), a} < std::pair{pieces_[a].bytes(), b};
  });
  const Chunk before = chunks_[source];
  std::vector<Index> next_before;
  for (const Index piece : leaving) {
    const Index target = find_goal(pieces_[piece], position % groups_);
    if (target == none) {
      take_back(leaving, next_before, source);
      chunks_[source] = before;
      return false;
    }
    next_before.push_back(pieces_[piece].next);
    put(piece, target);
  }
  return true;
}

// Takes the pieces out of their targets again. The cursors stay valid: the pieces of one chunk do
// not overlap, so none of them took the room of another.
void Colouring::take_back(const std::vector<Index>& leaving, const std::vector<Index>& next_before,
                          Index source) {
  for (std::size_t i = next_before.size(); i-- > 0;) {
    Piece& piece = pieces_[leaving[i]];
    Chunk& target = chunks_[piece.at];
    target.first = piece.next;
    --target.pieces;
    target.bytes -= piece.bytes();
    set_bits(piece.at, piece, false);
    piece.at = source;
    piece.next = next_before[i];
  }
}

// Searches from the fullest chunk downwards, so that nearly empty chunks can be emptied next. The
// chunk being emptied needs no check: it has the piece itself, so it has no room for it.
Colouring::Index Colouring::find_goal(const Piece& piece, Index group) {
  if (group >= targets_.size()) return none;
  const Search search{shape_of(piece), group};
  const Index last = (static_cast<Index>(targets_.size()) - 1 - group) / groups_;
  Index& rank = cursors_.try_emplace(search, last).first->second;
  const std::uint64_t within = cells_within(piece);
  for (; rank != none; --rank) {
    const Index target = rank * groups_ + group;
    if ((cells_[target] & within) == 0 && has_room(targets_[target], piece)) {
      return targets_[target];
    }
  }
  return none;
}

bool Colouring::has_room(Index chunk, const Piece& piece) const {
  if (chunks_[chunk].is_empty) return false;
  const std::uint64_t* const taken = &taken_[chunk * words_];
  return for_each_word(piece.begin, piece.end,
                       [&](Size word, std::uint64_t mask) { return (taken[word] & mask) == 0; });
}

void Colouring::put(Index piece, Index chunk) {
  Piece& moved = pieces_[piece];
  Chunk& target = chunks_[chunk];
  moved.at = chunk;
  moved.next = target.first;
  target.first = piece;
  ++target.pieces;
  target.bytes += moved.bytes();
  set_bits(chunk, moved, true);
}

void Colouring::set_bits(Index chunk, const Piece& piece, bool taken) {
  std::uint64_t* const words = &taken_[chunk * words_];
  for_each_word(piece.begin, piece.end, [&](Size word, std::uint64_t mask) {
    words[word] = taken ? words[word] | mask : words[word] & ~mask;
    return true;
  });
  if (order_.empty()) return;
  std::uint64_t& cells = cells_[target_of_[chunk]];
  const std::uint64_t within = cells_within(piece);
  cells = taken ? cells | within : cells & ~within;
}

std::uint64_t Colouring::cells_within(const Piece& piece) const {
  const Size first = (piece.begin + cell_steps_ - 1) / cell_steps_;
  const Size end = std::min<Size>(piece.end / cell_steps_, bits_a_word);
  return first < end ? ones(first, end) : 0;
}

}  // namespace cuvmm
