// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>

#include "sim/ptx.hpp"

namespace cuvmm::sim {

// The measured card's limits that affect launches.
inline constexpr int compute_capability = 90;
inline constexpr unsigned most_threads_per_block = 1024;
inline constexpr unsigned most_threads_per_multiprocessor = 2048;
inline constexpr unsigned most_blocks_per_multiprocessor = 32;
inline constexpr unsigned multiprocessors = 132;
inline constexpr Size usual_shared_bytes_per_block = 48 * KiB;
inline constexpr Size most_shared_bytes_per_block = 227 * KiB;  // with opt-in
inline constexpr Size shared_bytes_per_multiprocessor = 228 * KiB;
inline constexpr Size reserved_shared_bytes_per_block = 1 * KiB;

// The attributes that cuFuncGetAttribute returns and cuFuncSetAttribute changes.
class FunctionAttributes {
 public:
  FunctionAttributes(const PtxEntry& entry, int ptx_target);

  CUresult get(CUfunction_attribute attribute, int* value) const;
  CUresult set(CUfunction_attribute attribute, int value);
  void set_like(const FunctionAttributes& other);

  // Shorthands for launches.
  unsigned most_threads() const;
  Size static_shared_bytes() const;
  Size most_dynamic_shared_bytes() const;

 private:
  int at(CUfunction_attribute attribute) const {
    return values_[static_cast<std::size_t>(attribute)].load();
  }
  std::array<std::atomic<int>, CU_FUNC_ATTRIBUTE_MAX> values_{};
};

// How many blocks of this shape fit on a multiprocessor, limited by threads, blocks and shared
// memory. Assumes 32 registers per thread for every function, which is never the limit.
unsigned blocks_per_multiprocessor(const FunctionAttributes& function, Size threads,
                                   Size dynamic_shared_bytes);

}  // namespace cuvmm::sim
