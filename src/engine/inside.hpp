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
  friend class Outside;
  // Initial-exec, so that reading it calls nothing: a lookup may happen while the loader holds its
  // lock, and in a thread that is only half made.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int depth_ = 0;
};

// While it lives, this thread runs code of the program's that we called: its driver calls go
// through the hooks as if it had never been inside.
class Outside {
 public:
  Outside() : depth_before_(Inside::depth_) { Inside::depth_ = 0; }
  ~Outside() { Inside::depth_ = depth_before_; }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  const int depth_before_;
};

}  // namespace cuvmm
