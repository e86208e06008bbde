// SPDX-License-Identifier: Apache-2.0
#include "replay/expandable_model.hpp"

#include <vector>

namespace cuvmm::replay {

using namespace pytorch;
using State = Piece::State;

namespace {

// The size a free piece can grow to, including the unmapped addresses after it.
Size size_when_expanded(const Piece& piece) {
  const bool expands = piece.after != nullptr && piece.after->state == State::Unmapped;
  return piece.size + (expands ? piece.after->size : 0);
}

bool has_room(const Piece* piece, Size size) {
  Size room = 0;
  for (; piece != nullptr && piece->state != State::Used && room < size; piece = piece->after) {
    room += piece->size;
  }
  return room >= size;
}

}  // namespace

// Best fit by the size that pieces can grow to, so that requests avoid the piece that is about to
// grow until nothing else fits.
Piece* ExpandableModel::take_cached(Pool& pool, Size size, StreamId stream) {
  auto best = best_fit(pool, size, stream);
  if (best == pool.free.end()) return nullptr;
  for (auto next = std::next(best); next != pool.free.end() && (*next)->stream == stream &&
                                    size_when_expanded(**next) < size_when_expanded(**best);
       ++next) {
    best = next;
  }
  Piece* piece = *best;
  pool.free.erase(best);
  return piece;
}

Piece* ExpandableModel::take_new(Pool& pool, Size size, StreamId stream) {
  Piece* piece = &place_for(pool, size, stream);
  if (piece->state == State::Unmapped && !map(*piece, std::min(piece->size, size))) return nullptr;
  while (piece->size < size) {
    Piece* next = piece->after;  // unmapped, since free neighbours are merged
    if (!map(*next, std::min(next->size, size - piece->size))) return nullptr;
    piece = next;
  }
  pool.free.erase(piece);
  return piece;
}

Piece& ExpandableModel::place_for(Pool& pool, Size size, StreamId stream) {
  Piece first{.stream = stream};
  for (auto at = pool.unmapped.lower_bound(&first);
       at != pool.unmapped.end() && (*at)->stream == stream; ++at) {
    Piece* begin = *at;
    if (begin->before != nullptr && begin->before->state == State::Free) begin = begin->before;
    if (has_room(begin, size)) return *begin;
  }
  const Size granule = granule_of(pool);
  const Size addresses = round_up(card_memory_ + card_memory_ / 8, granule);
  Piece& buffer = make_piece({.address = memory_.new_addresses(addresses, granule),
                              .size = addresses,
                              .stream = stream,
                              .state = State::Unmapped,
                              .pool = &pool});
  pool.unmapped.insert(&buffer);
  return buffer;
}

bool ExpandableModel::map(Piece& piece, Size size) {
  Pool& pool = *piece.pool;
  const Size granule = granule_of(pool);
  const Size mapped = round_up(size, granule);  // unmapped pieces begin and end at granules
  const std::uint64_t granules = mapped / granule;
  if (!memory_.take(mapped)) {
    // PyTorch creates granules one at a time, and releases them if one fails.
    const std::uint64_t created = memory_.available() / granule;
    memory_.charge(CardCall::Create, granule, created + 1);
    memory_.charge(CardCall::Release, granule, created);
    return false;
  }
  memory_.charge(CardCall::Create, granule, granules);
  memory_.charge(CardCall::MapAndAccess, granule, granules);
  creates_ += granules;

  pool.unmapped.erase(&piece);
  if (mapped < piece.size) pool.unmapped.insert(&cut(piece, mapped));
  piece.state = State::Free;
  merge(piece);
  pool.free.insert(&piece);
  return true;
}

void ExpandableModel::release_cached() {
  for (Pool* pool : {&large_, &small_}) {
    const std::vector<Piece*> all(pool->free.begin(), pool->free.end());
    for (Piece* piece : all) unmap_whole_granules(*piece);
  }
}

void ExpandableModel::unmap_whole_granules(Piece& piece) {
  Pool& pool = *piece.pool;
  const Size granule = granule_of(pool);
  const std::uint64_t begin = round_up(piece.address, granule);
  const std::uint64_t end = round_down(piece.end(), granule);
  if (begin >= end) return;
  memory_.charge(CardCall::Unmap, granule, (end - begin) / granule);
  memory_.charge(CardCall::Release, granule, (end - begin) / granule);
  memory_.give_back(end - begin);

  pool.free.erase(&piece);
  Piece* middle = &piece;
  if (begin > piece.address) {
    middle = &cut(piece, begin - piece.address);
    pool.free.insert(&piece);
  }
  if (end < middle->end()) pool.free.insert(&cut(*middle, end - begin));
  middle->state = State::Unmapped;
  merge(*middle);
  if (middle->is_whole_buffer()) {
    forget_piece(*middle);
  } else {
    pool.unmapped.insert(middle);
  }
}

bool ExpandableModel::is_worth_cutting(PoolKind, Size rest) const {
  return rest >= step;
}

}  // namespace cuvmm::replay
