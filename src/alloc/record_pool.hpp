// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/lock.hpp"

namespace cuvmm {

// Blocks of records, none of them in use, whose owners have ended. Of one type of record.
class LeftBlocks {
 public:
  void put(void* block);
  void* take();  // nullptr: there are none

 private:
  Lock lock_{LockOrder::RecordPool};
  std::vector<void*> blocks_;
};

// A pool of records that are reused but never returned to the system: a thread that still holds the
// address of a freed record reads a record of that type, not something else. When the pool ends,
// the next one that grows takes its blocks over. Unused records are linked through
// `T::next_unused()`, a pointer that they do not need meanwhile. Not synchronised.
template <class T>
class RecordPool {
 public:
  RecordPool() = default;
  // Records that are still in use are destroyed: then no other thread can be looking at them.
  ~RecordPool() {
    if (in_use_ != 0) return;
    for (auto& block : blocks_) left().put(block.release());
  }
  RecordPool(const RecordPool&) = delete;
  RecordPool& operator=(const RecordPool&) = delete;

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

  // Never destroyed, since records may be read while the process exits.
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
