// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

class Context;

// While a cuMemFree waits for the work of a context, most calls of other threads that submit work
// to that context wait for the free (measured).
class WaitingFree {
 public:
  explicit WaitingFree(const Context& context);
  ~WaitingFree();
  WaitingFree(const WaitingFree&) = delete;
  WaitingFree& operator=(const WaitingFree&) = delete;

 private:
  const Context& context_;
};

// Returns once no cuMemFree waits in the calling thread's current context. Returns at once if the
// row does not wait for frees.
void wait_behind_frees(Row row);

}  // namespace cuvmm::sim
