// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "replay/pytorch_model.hpp"

namespace cuvmm::replay {

// PyTorch with expandable_segments:True: for each stream and pool one buffer of addresses that is
// somewhat larger than the card, into which granules are mapped where the next request needs them.
// Only when the driver has no more are granules unmapped that are wholly free.
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
  // The lowest place with so many bytes that are free or unmapped, a new buffer's if need be.
  Piece& place_for(Pool& pool, Size size, StreamId stream);
  // Memory behind the first `size` bytes of an unmapped piece, in whole granules. The piece becomes
  // a free one, and takes its free neighbours in. False where the driver has none.
  bool map(Piece& piece, Size size);
  void unmap_whole_granules(Piece& piece);

  Size card_memory_;
  Size large_granule_;
};

}  // namespace cuvmm::replay
