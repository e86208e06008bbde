// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/stream_cache.hpp"

#include <string>

namespace cuvmm::arena {

std::size_t StreamCache::place_of(Size size, StreamId stream) {
  const std::uint64_t mixed = (size / step + (std::uint64_t{stream} << 40)) * 0x9E3779B97F4A7C15u;
  return mixed >> 54;
}
static_assert(std::size_t{1} << (64 - 54) == 1024, "a place is a bin's number");

StreamCache::Bin& StreamCache::find(Size size, StreamId stream) {
  std::size_t place = place_of(size, stream);
  for (;; place = (place + 1) % bin_count) {
    Bin& bin = bins_[place];
    if (bin.size == 0 || (bin.size == size && bin.stream == stream)) return bin;
  }
}

Block* StreamCache::take(Size size, StreamId stream) {
  if (count_ == 0) return nullptr;
  Bin& bin = find(size, stream);
  Block* const block = bin.top;
  if (block == nullptr) return nullptr;
  bin.top = block->below;
  block->is_cached = false;
  block->is_behind_others = false;
  --count_;
  bytes_.store(bytes() - size, std::memory_order_relaxed);
  return block;
}

bool StreamCache::put(Block& block, std::uint64_t tick, const Bounds& bounds) {
  const Size size = block.granted();
  const Size kept = bytes();
  if (count_ >= bounds.blocks || kept > bounds.bytes || size > bounds.bytes - kept) return false;
  if (bins_.empty()) bins_.resize(bin_count);
  Bin& bin = find(size, block.stream);
  if (bin.size == 0) {
    if (used_.size() == most_bins) return false;
    bin.size = size;
    bin.stream = block.stream;
    used_.push_back(static_cast<std::uint32_t>(&bin - bins_.data()));
  }
  if (count_ == 0) oldest_ = {block.stream, tick};
  is_of_one_stream_ = oldest_.stream == block.stream && (count_ == 0 || is_of_one_stream_);
  block.below = bin.top;
  block.tick = tick;
  block.is_cached = true;
  bin.top = &block;
  ++count_;
  bytes_.store(kept + size, std::memory_order_relaxed);
  return true;
}

InvariantViolation StreamCache::violation() const {
  std::size_t blocks = 0;
  Size bytes = 0;
  for (const std::uint32_t used : used_) {
    const Bin& bin = bins_[used];
    for (const Block* block = bin.top; block != nullptr; block = block->below) {
      if (++blocks > count_) return "stream cache: more blocks than are counted";
      bytes += bin.size;
      if (!block->is_cached) return "stream cache: it keeps a block that is live";
      if (block->is_held()) return "stream cache: it keeps a block that the program holds";
      if (block->granted() != bin.size || block->stream != bin.stream) {
        return "stream cache: a block of " + std::to_string(block->granted()) +
               " bytes lies with those of " + std::to_string(bin.size);
      }
    }
  }
  if (blocks != count_ || bytes != this->bytes()) return "stream cache: it is counted wrongly";
  return {};
}

}  // namespace cuvmm::arena
