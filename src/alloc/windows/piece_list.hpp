// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace cuvmm {

struct WindowBlock;

// A chunk's pieces, each represented by its block: a vector of half the usual size, because there
// are 10^5 of them. A chunk has at most as many pieces as it has steps of 512 bytes.
class PieceList {
 public:
  using Iterator = WindowBlock* const*;

  PieceList() = default;
  PieceList(const PieceList&) = delete;
  PieceList& operator=(const PieceList&) = delete;

  Iterator begin() const { return blocks_.get(); }
  Iterator end() const { return blocks_.get() + count_; }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  WindowBlock* front() const { return blocks_[0]; }
  // For callers that change the list while walking it.
  std::vector<WindowBlock*> copy() const { return {begin(), end()}; }

  void reserve(std::size_t room) {
    if (room <= room_) return;
    auto larger = std::make_unique<WindowBlock*[]>(room);
    std::copy(begin(), end(), larger.get());
    blocks_ = std::move(larger);
    room_ = static_cast<std::uint16_t>(room);
  }
  void insert(Iterator before, WindowBlock& block) {
    const auto at = before - begin();
    if (count_ == room_) reserve(std::size_t{room_} * 2 + 1);
    WindowBlock** const place = blocks_.get() + at;
    std::copy_backward(place, blocks_.get() + count_, blocks_.get() + count_ + 1);
    *place = &block;
    ++count_;
  }
  void erase(Iterator which) {
    std::copy(which + 1, end(), blocks_.get() + (which - begin()));
    --count_;
  }
  void clear() {
    blocks_.reset();
    count_ = room_ = 0;
  }

 private:
  std::unique_ptr<WindowBlock*[]> blocks_;
  std::uint16_t count_ = 0;
  std::uint16_t room_ = 0;
};

}  // namespace cuvmm
