// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// While it lives, this thread runs code of ours: the driver calls that it makes, and those that
// the driver makes in turn, go straight through every hook.
class Inside {
 public:
  Inside() { ++depth_; }
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  static bool here() { return depth_ != 0; }

 private:
  // Initial-exec, so that reading it calls nothing: a lookup may happen while the loader holds its
  // lock, and in a thread that is only half made.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int depth_ = 0;
};

}  // namespace cuvmm
