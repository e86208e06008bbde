// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cuvmm {

// Records of one type that are used again and never given to the system before the whole ends, so
// that who still holds the address of one that is gone reads a record and not something else. Not
// synchronised.
template <class T>
class Records {
 public:
  Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  T& make() {
    if (unused_.empty()) grow();
    T* record = unused_.back();
    unused_.pop_back();
    return *record;
  }
  // The record keeps what it holds until it is made again.
  void give_back(T& record) { unused_.push_back(&record); }

  std::size_t in_use() const { return blocks_.size() * records_a_block - unused_.size(); }

 private:
  static constexpr std::size_t records_a_block = 256;

  void grow() {
    blocks_.push_back(std::make_unique<T[]>(records_a_block));
    unused_.reserve(blocks_.size() * records_a_block);
    for (std::size_t i = records_a_block; i-- > 0;) unused_.push_back(&blocks_.back()[i]);
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<T*> unused_;
};

}  // namespace cuvmm
