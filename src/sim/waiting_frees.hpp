// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

class Context;

// While a cuMemFree waits for the work of a context, most calls of other threads that submit
// something there wait for it (measured).
class WaitingFree {
 public:
  explicit WaitingFree(const Context& context);
  ~WaitingFree();
  WaitingFree(const WaitingFree&) = delete;
  WaitingFree& operator=(const WaitingFree&) = delete;

 private:
  const Context& context_;
};

// Returns once no cuMemFree waits in the calling thread's current context, if the row is one that
// waits for those.
void wait_behind_frees(Row row);

}  // namespace cuvmm::sim
