// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/lock.hpp"
#include "base/made_once.hpp"

namespace cuvmm {

// Blocks of unused records whose pools have ended. All records are of one type.
class LeftBlocks {
 public:
  void put(void* block);
  void* take();  // nullptr if there is none

 private:
  Lock lock_{LockOrder::RecordPool};
  std::vector<void*> blocks_;
};

// A pool of records that are reused but never returned to the system: a thread that still has the
// address of a freed record reads a record of the same type. When a pool ends, the next pool that
// grows takes over its blocks. Unused records are linked through `T::next_unused()`, a pointer that
// an unused record does not otherwise need. Not synchronised.
template <class T>
class RecordPool {
 public:
  RecordPool() = default;
  // If records are still in use, all are destroyed: no other thread can be reading them then.
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
  // The record keeps its contents, except for that pointer, until make() returns it again.
  void give_back(T& record) {
    record.next_unused() = std::exchange(unused_, &record);
    --in_use_;
  }

  std::size_t in_use() const { return in_use_; }

 private:
  static constexpr std::size_t records_a_block = 256;

  // Never destroyed, since records may be read while the process exits.
  static LeftBlocks& left() {
    static constinit MadeOnce<LeftBlocks> left;
    return left.get();
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
