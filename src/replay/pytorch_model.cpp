// SPDX-License-Identifier: Apache-2.0
#include "replay/pytorch_model.hpp"

namespace cuvmm::replay {

using namespace pytorch;
using State = Piece::State;

Result<void> PytorchModel::allocate(const ReplayEvent& event) {
  const Size size = round_up(event.size, step);
  Pool& pool = size <= largest_small ? small_ : large_;
  Piece* piece = take_cached(pool, size, event.stream);
  if (piece == nullptr) piece = take_new(pool, size, event.stream);
  if (piece == nullptr) {
    release_cached();
    ++retries_;
    piece = take_new(pool, size, event.stream);
  }
  if (piece == nullptr) {
    return Error{.kind = ErrorKind::OutOfMemory,
                 .doing = "allocate",
                 .asked = event.size,
                 .available = memory_.available()};
  }
  if (piece->size > size && is_worth_cutting(pool.kind, piece->size - size)) {
    pool.free.insert(&cut(*piece, size));
  }
  piece->state = State::Used;
  used_[event.block] = piece;
  return {};
}

Result<void> PytorchModel::release(const ReplayEvent& event) {
  const auto found = used_.find(event.block);
  if (found == used_.end()) return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  Piece& piece = *found->second;
  used_.erase(found);
  piece.state = State::Free;
  merge(piece);
  piece.pool->free.insert(&piece);
  return {};
}

PolicyCounters PytorchModel::counters() const {
  return {.physical_peak_bytes = memory_.peak(),
          .creates = creates_,
          .retries = retries_,
          .modelled_us = memory_.modelled_us()};
}

std::set<Piece*, BySize>::iterator PytorchModel::best_fit(Pool& pool, Size size, StreamId stream) {
  Piece least{.size = size, .stream = stream};
  const auto found = pool.free.lower_bound(&least);
  return found != pool.free.end() && (*found)->stream == stream ? found : pool.free.end();
}

Piece& PytorchModel::cut(Piece& piece, Size size) {
  Piece& rest = make_piece(piece);
  rest.address += size;
  rest.size -= size;
  rest.before = &piece;
  if (rest.after != nullptr) rest.after->before = &rest;
  piece.size = size;
  piece.after = &rest;
  return rest;
}

void PytorchModel::merge(Piece& piece) {
  for (Piece* neighbour : {piece.before, piece.after}) {
    if (neighbour != nullptr && neighbour->state == piece.state) take_in(piece, *neighbour);
  }
}

void PytorchModel::take_in(Piece& piece, Piece& neighbour) {
  if (piece.state == State::Free) {
    piece.pool->free.erase(&neighbour);
  } else {
    piece.pool->unmapped.erase(&neighbour);
  }
  piece.size += neighbour.size;
  if (&neighbour == piece.before) {
    piece.address = neighbour.address;
    piece.before = neighbour.before;
    if (piece.before != nullptr) piece.before->after = &piece;
  } else {
    piece.after = neighbour.after;
    if (piece.after != nullptr) piece.after->before = &piece;
  }
  forget_piece(neighbour);
}

}  // namespace cuvmm::replay
