// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "replay/pytorch_model.hpp"

namespace cuvmm::replay {

// PyTorch's default: buffers from cudaMalloc, kept until the driver runs out. Memory is released
// only in whole buffers.
class CachingModel final : public PytorchModel {
 public:
  explicit CachingModel(Size limit) : PytorchModel(limit) {}

 private:
  Piece* take_cached(Pool& pool, Size size, StreamId stream) override;
  Piece* take_new(Pool& pool, Size size, StreamId stream) override;
  void release_cached() override;
  bool is_worth_cutting(PoolKind kind, Size rest) const override;
};

}  // namespace cuvmm::replay
