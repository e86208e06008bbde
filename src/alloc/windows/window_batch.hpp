// SPDX-License-Identifier: Apache-2.0
// What compaction is to do, and what of it is under way.
#pragma once

#include <vector>

#include "alloc/windows/windows.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm {

struct Windows::BatchMove {
  WindowBlock* block;
  SharedChunk* to;
  SharedChunk::Id to_id;
  CUdeviceptr way = 0;  // a granule of addresses that `to` lies behind while it is written
};

struct Windows::BatchSource {
  SharedChunk* chunk;
  SharedChunk::Id id;
  std::vector<BatchMove> moves;
};

struct Windows::Batch {
  std::vector<BatchSource> sources;
  CUstream stream = nullptr;
  std::shared_ptr<ScratchMapping> place;  // that the copies go to, where it is no window
};

struct Windows::Plan {
  std::vector<BatchSource> sources;  // those that cost least first
  std::size_t chunks() const { return sources.size(); }
};

}  // namespace cuvmm
