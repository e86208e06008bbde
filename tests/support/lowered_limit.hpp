// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace cuvmm::test {

// Lowers one of this process's limits (RLIMIT_NOFILE, for example) until the end of the scope. With
// 0 descriptors, a process opens no more and keeps those that it has.
class LoweredLimit {
 public:
  LoweredLimit(int resource, rlim_t most) : resource_(resource) {
    EXPECT_EQ(::getrlimit(resource_, &before_), 0);
    const rlimit lowered{.rlim_cur = most, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource_, &lowered), 0);
  }
  ~LoweredLimit() { ::setrlimit(resource_, &before_); }
  LoweredLimit(const LoweredLimit&) = delete;
  LoweredLimit& operator=(const LoweredLimit&) = delete;

 private:
  const int resource_;
  rlimit before_{};
};

inline rlim_t lowest_free_descriptor() {
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  return static_cast<rlim_t>(next);
}

}  // namespace cuvmm::test
