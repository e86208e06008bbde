// SPDX-License-Identifier: Apache-2.0
// What only the simulated driver can do for a test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/clock.hpp"
#include "hook_sim/doors.hpp"

namespace cuvmm::test {

template <class Function>
Function* of_simulated_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(open_driver(), name));
}

// For example "cuMemMap:2=CUDA_ERROR_OUT_OF_MEMORY". "": no more faults.
inline void fail_calls(const std::string& which) {
  ASSERT_EQ(of_simulated_driver<int(const char*)>("cuvmm_sim_set_faults")(which.c_str()), 0);
}

// A host function that runs until the std::atomic<bool> is true.
inline void until_it_may(void* may_end) {
  while (!static_cast<std::atomic<bool>*>(may_end)->load()) rest_us(100);
}

}  // namespace cuvmm::test
