// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/lock.hpp"

namespace cuvmm {

// Of records of one type that have ended, none of them in use.
class LeftBlocks {
 public:
  void put(void* block);
  void* take();  // nullptr: there are none

 private:
  Lock lock_{LockOrder::Records};
  std::vector<void*> blocks_;
};

// Records of one type that are used again and never given to the system, so that who still holds
// the address of one that is gone reads a record and not something else. When the whole ends they
// go to whoever needs some next. Those that are unused are listed through `T::next_unused()`, a
// pointer that a record has anyway and that means nothing meanwhile. Not synchronised.
template <class T>
class Records {
 public:
  Records() = default;
  // None is in use; else nobody else looks at them either.
  ~Records() {
    if (in_use_ != 0) return;
    for (auto& block : blocks_) left().put(block.release());
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  T& make() {
    if (unused_ == nullptr) grow();
    T& record = *unused_;
    unused_ = std::exchange(record.next_unused(), nullptr);
    ++in_use_;
    return record;
  }
  // The record keeps what it holds, but for that pointer, until it is made again.
  void give_back(T& record) {
    record.next_unused() = std::exchange(unused_, &record);
    --in_use_;
  }

  std::size_t in_use() const { return in_use_; }

 private:
  static constexpr std::size_t records_a_block = 256;

  // For good: records may be read while the process ends.
  static LeftBlocks& left() {
    static LeftBlocks& left = *new LeftBlocks;
    return left;
  }

  void grow() {
    void* const taken = left().take();
    blocks_.emplace_back(taken != nullptr ? static_cast<T*>(taken) : new T[records_a_block]);
    T* const block = blocks_.back().get();
    for (std::size_t i = records_a_block; i-- > 0;) {
      block[i].next_unused() = std::exchange(unused_, &block[i]);
    }
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  T* unused_ = nullptr;
  std::size_t in_use_ = 0;
};

}  // namespace cuvmm
