// SPDX-License-Identifier: Apache-2.0
#include "replay/caching_model.hpp"

namespace cuvmm::replay {

using namespace pytorch;

namespace {

Size buffer_size(Size size) {
  if (size <= largest_small) return small_buffer;
  if (size < least_own_buffer) return large_buffer;
  return round_up(size, own_buffer_step);
}

}  // namespace

Piece* CachingModel::take_cached(Pool& pool, Size size, StreamId stream) {
  const auto found = best_fit(pool, size, stream);
  if (found == pool.free.end()) return nullptr;
  Piece* piece = *found;
  pool.free.erase(found);
  return piece;
}

Piece* CachingModel::take_new(Pool& pool, Size size, StreamId stream) {
  const Size buffer = buffer_size(size);
  memory_.charge(CardCall::Allocate, buffer);
  if (!memory_.take(buffer)) return nullptr;
  ++creates_;
  return &make_piece({.address = memory_.new_addresses(buffer, usual_granule),
                      .size = buffer,
                      .stream = stream,
                      .pool = &pool});
}

void CachingModel::release_cached() {
  for (Pool* pool : {&large_, &small_}) {
    for (auto at = pool->free.begin(); at != pool->free.end();) {
      Piece& piece = **at;
      if (!piece.is_whole_buffer()) {
        ++at;
        continue;
      }
      at = pool->free.erase(at);
      memory_.charge(CardCall::Free, piece.size);
      memory_.give_back(piece.size);
      forget_piece(piece);
    }
  }
}

bool CachingModel::is_worth_cutting(PoolKind kind, Size rest) const {
  return kind == PoolKind::Small ? rest >= step : rest > largest_small;
}

}  // namespace cuvmm::replay
