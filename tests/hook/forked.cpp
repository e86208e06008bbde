// SPDX-License-Identifier: Apache-2.0
// The child of a fork shares nothing with the engine of its parent.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook/driver_behind.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm::test {
namespace {

TEST(Forked, OnlyTheParentKeepsADeferredRelease) {
  engine_over_silent_driver();
  static bool is_refused = true;
  release_or_defer(Deferred::Handle, [] { return is_refused ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; });
  ASSERT_EQ(deferred_releases(), 1u);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(deferred_releases() == 0 && retry_releases() == 0 ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child would release its parent's handle";
  EXPECT_EQ(retry_releases(), 1u);
  is_refused = false;
  EXPECT_EQ(retry_releases(), 0u);
}

}  // namespace
}  // namespace cuvmm::test
