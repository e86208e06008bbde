// SPDX-License-Identifier: Apache-2.0
#include "alloc/record_pool.hpp"

namespace cuvmm {

void LeftBlocks::put(void* block) {
  const Holding holding{lock_};
  blocks_.push_back(block);
}

void* LeftBlocks::take() {
  const Holding holding{lock_};
  if (blocks_.empty()) return nullptr;
  void* const block = blocks_.back();
  blocks_.pop_back();
  return block;
}

}  // namespace cuvmm
