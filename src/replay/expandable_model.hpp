// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "replay/pytorch_model.hpp"

namespace cuvmm::replay {

// PyTorch with expandable_segments:True: each stream and pool has one address range, somewhat
// larger than the card, into which granules are mapped wherever the next request needs them. Wholly
// free granules are unmapped only when the driver runs out.
class ExpandableModel final : public PytorchModel {
 public:
  static constexpr Size usual_large_granule = pytorch::large_buffer;

  ExpandableModel(Size limit, Size card_memory, Size large_granule = usual_large_granule)
      : PytorchModel(limit), card_memory_(card_memory), large_granule_(large_granule) {}

 private:
  Piece* take_cached(Pool& pool, Size size, StreamId stream) override;
  Piece* take_new(Pool& pool, Size size, StreamId stream) override;
  void release_cached() override;
  bool is_worth_cutting(PoolKind kind, Size rest) const override;

  Size granule_of(const Pool& pool) const {
    return pool.kind == PoolKind::Small ? pytorch::small_buffer : large_granule_;
  }
  // The lowest place with `size` bytes that are free or unmapped, in a new buffer if necessary.
  Piece& place_for(Pool& pool, Size size, StreamId stream);
  // Maps memory behind the first `size` bytes of an unmapped piece, in whole granules. The piece
  // becomes free and merges with its free neighbours. False if the driver has no memory.
  bool map(Piece& piece, Size size);
  void unmap_whole_granules(Piece& piece);

  Size card_memory_;
  Size large_granule_;
};

}  // namespace cuvmm::replay
