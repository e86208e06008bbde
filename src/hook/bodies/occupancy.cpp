// SPDX-License-Identifier: Apache-2.0
// Queries during which the driver calls the program back on the same thread. What the program calls
// there goes through the hooks again.
#include "engine/hook_bypass.hpp"
#include "hook/door.hpp"

namespace cuvmm::hook {
namespace {

// The driver passes nothing to the callback that could tell whose it is. A callback may query
// again, so the one before returns afterwards.
class ProgramsCallback {
 public:
  explicit ProgramsCallback(CUoccupancyB2DSize callback) : before_(current_) {
    current_ = callback;
  }
  ~ProgramsCallback() { current_ = before_; }
  ProgramsCallback(const ProgramsCallback&) = delete;
  ProgramsCallback& operator=(const ProgramsCallback&) = delete;

  static CUoccupancyB2DSize with_hooks() { return current_ != nullptr ? &run : nullptr; }

 private:
  static size_t CUDA_CB run(int block_size) {
    const HooksRestored hooks;
    return current_(block_size);
  }

  static inline constinit thread_local CUoccupancyB2DSize current_ = nullptr;
  CUoccupancyB2DSize before_;
};

}  // namespace

CUVMM_HOOK(cuOccupancyMaxPotentialBlockSize, int* grid, int* block, CUfunction function,
           CUoccupancyB2DSize shared_of, size_t shared, int limit) {
  const ProgramsCallback callback{shared_of};
  return forward(grid, block, function, ProgramsCallback::with_hooks(), shared, limit);
}

CUVMM_HOOK(cuOccupancyMaxPotentialBlockSizeWithFlags, int* grid, int* block, CUfunction function,
           CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned flags) {
  const ProgramsCallback callback{shared_of};
  return forward(grid, block, function, ProgramsCallback::with_hooks(), shared, limit, flags);
}

}  // namespace cuvmm::hook
