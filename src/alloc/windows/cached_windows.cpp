// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/cached_windows.hpp"

namespace cuvmm {

CachedWindows::Ages& CachedWindows::ages_of(const WindowBlock& block) {
  if (block.state == WindowBlock::State::Pending) return pending_;
  return block.whole != nullptr ? large_ : small_;
}

CachedWindows::OfSize& CachedWindows::of_size(Size granted) {
  if (sizes_.size() > sizes_kept) {
    std::erase_if(sizes_, [](const auto& size) { return size.second.is_empty(); });
  }
  return sizes_[granted];
}

void CachedWindows::add_ready(WindowBlock& block) {
  block.state = WindowBlock::State::Ready;
  of_size(block.granted()).ready.push_front(block);
  ages_of(block).push_back(block);
  ++ready_count_;
  bytes_ += block.granted();
}

void CachedWindows::add_pending(WindowBlock& block) {
  block.state = WindowBlock::State::Pending;
  of_size(block.granted()).pending.push_back(block);
  pending_.push_back(block);
  ++pending_count_;
  bytes_ += block.granted();
}

void CachedWindows::remove(WindowBlock& block) {
  OfSize& same = sizes_.find(block.granted())->second;
  ages_of(block).remove(block);
  if (block.state == WindowBlock::State::Ready) {
    same.ready.remove(block);
    --ready_count_;
  } else {
    same.pending.remove(block);
    --pending_count_;
  }
  bytes_ -= block.granted();
}

WindowBlock* CachedWindows::find_ready(Size granted) const {
  if (ready_count_ == 0) return nullptr;
  const auto found = sizes_.find(granted);
  return found != sizes_.end() ? found->second.ready.first() : nullptr;
}

WindowBlock* CachedWindows::find_done(Size granted, const StreamOrder& order) const {
  if (pending_count_ == 0) return nullptr;
  const auto found = sizes_.find(granted);
  if (found == sizes_.end()) return nullptr;
  int left = few;
  for (WindowBlock* block = found->second.pending.first(); block != nullptr && left-- > 0;
       block = Sizes::after(*block)) {
    if (order.is_done(block->ticket())) return block;
  }
  return nullptr;
}

InvariantViolation CachedWindows::violation() const {
  using State = WindowBlock::State;
  std::size_t ready = 0;
  std::size_t pending = 0;
  Size bytes = 0;
  for (const auto& [granted, same] : sizes_) {
    ready += same.ready.count();
    pending += same.pending.count();
    for (auto* block = same.ready.first(); block != nullptr; block = Sizes::after(*block)) {
      if (block->state != State::Ready) return "cached windows: a ready one is not";
      if (block->granted() != granted) return "cached windows: one has another size";
      bytes += granted;
    }
    for (auto* block = same.pending.first(); block != nullptr; block = Sizes::after(*block)) {
      if (block->state != State::Pending) return "cached windows: a pending one is not";
      if (block->granted() != granted) return "cached windows: one has another size";
      bytes += granted;
    }
  }
  if (ready != ready_count_ || small_.count() + large_.count() != ready_count_) {
    return "cached windows: ready ones are counted wrongly";
  }
  if (pending != pending_count_ || pending_.count() != pending_count_) {
    return "cached windows: pending ones are counted wrongly";
  }
  if (bytes != bytes_) return "cached windows: their bytes are counted wrongly";
  return {};
}

}  // namespace cuvmm
