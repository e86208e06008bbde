// SPDX-License-Identifier: Apache-2.0
// Planned compaction, and the part of it that is in flight.
#pragma once

#include <vector>

#include "alloc/windows/windows.hpp"

namespace cuvmm {

struct Windows::BatchMove {
  WindowBlock* block;
  SharedChunk* to;
  SharedChunk::Id to_id;
  CUdeviceptr write_address = 0;  // a granule of addresses through which `to` is written
};

struct Windows::BatchSource {
  SharedChunk* chunk;
  SharedChunk::Id id;
  std::vector<BatchMove> moves;
};

struct Windows::Batch {
  std::vector<BatchSource> sources;
  CUstream stream = nullptr;
};

struct Windows::Plan {
  std::vector<BatchSource> sources;  // cheapest first
  std::size_t chunks() const { return sources.size(); }
};

}  // namespace cuvmm
