// SPDX-License-Identifier: Apache-2.0
#include "sim/function_attributes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace cuvmm::sim {
namespace {

constexpr int registers_per_thread = 32;
constexpr Size threads_of_a_warp = 32;

bool is_attribute(CUfunction_attribute attribute) {
  return attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX;
}

// The bounds of a settable attribute.
std::optional<std::pair<int, int>> bounds_of(CUfunction_attribute attribute, Size shared_bytes) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return std::pair{0, static_cast<int>(most_shared_bytes_per_block - shared_bytes)};
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return std::pair{-1, 100};
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return std::pair{0, 16};
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return std::pair{0, 1};
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return std::pair{0, 2};
    default:
      return std::nullopt;
  }
}

}  // namespace

FunctionAttributes::FunctionAttributes(const PtxEntry& entry, int ptx_target) {
  const auto begin_with = [this](CUfunction_attribute attribute, Size value) {
    values_[static_cast<std::size_t>(attribute)].store(static_cast<int>(value));
  };
  const Size shared = std::min(entry.shared_bytes, most_shared_bytes_per_block);
  begin_with(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
             entry.most_threads != 0 ? entry.most_threads : most_threads_per_block);
  begin_with(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, shared);
  begin_with(CU_FUNC_ATTRIBUTE_NUM_REGS, registers_per_thread);
  begin_with(CU_FUNC_ATTRIBUTE_PTX_VERSION, static_cast<Size>(ptx_target));
  begin_with(CU_FUNC_ATTRIBUTE_BINARY_VERSION, compute_capability);
  begin_with(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
             usual_shared_bytes_per_block - std::min(shared, usual_shared_bytes_per_block));
  values_[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT].store(-1);
}

CUresult FunctionAttributes::get(CUfunction_attribute attribute, int* value) const {
  if (value == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  *value = at(attribute);
  return CUDA_SUCCESS;
}

CUresult FunctionAttributes::set(CUfunction_attribute attribute, int value) {
  const auto bounds = bounds_of(attribute, static_shared_bytes());
  if (!bounds || value < bounds->first || value > bounds->second) return CUDA_ERROR_INVALID_VALUE;
  values_[static_cast<std::size_t>(attribute)].store(value);
  return CUDA_SUCCESS;
}

void FunctionAttributes::set_like(const FunctionAttributes& other) {
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i].store(other.values_[i].load());
}

unsigned FunctionAttributes::most_threads() const {
  return static_cast<unsigned>(at(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
}

Size FunctionAttributes::static_shared_bytes() const {
  return static_cast<Size>(at(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
}

Size FunctionAttributes::most_dynamic_shared_bytes() const {
  return static_cast<Size>(at(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
}

unsigned blocks_per_multiprocessor(const FunctionAttributes& function, Size threads,
                                   Size dynamic_shared_bytes) {
  if (threads > function.most_threads() ||
      dynamic_shared_bytes > function.most_dynamic_shared_bytes()) {
    return 0;
  }
  const Size whole_warps = std::max<Size>(round_up(threads, threads_of_a_warp), threads_of_a_warp);
  const Size by_threads = most_threads_per_multiprocessor / whole_warps;
  const Size shared =
      function.static_shared_bytes() + dynamic_shared_bytes + reserved_shared_bytes_per_block;
  const Size by_shared = shared_bytes_per_multiprocessor / shared;
  return static_cast<unsigned>(
      std::min({Size{most_blocks_per_multiprocessor}, by_threads, by_shared}));
}

}  // namespace cuvmm::sim
