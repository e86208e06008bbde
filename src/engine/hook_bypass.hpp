// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// While it lives, this thread runs code of ours: the driver calls that it makes, and those that
// the driver makes in turn, go straight through every hook.
class HookBypass {
 public:
  HookBypass() { ++depth_; }
  ~HookBypass() { --depth_; }
  HookBypass(const HookBypass&) = delete;
  HookBypass& operator=(const HookBypass&) = delete;

  static bool is_active() { return depth_ != 0; }

 private:
  friend class HooksRestored;
  // Initial-exec, so that reading it calls nothing: a lookup may happen while the loader holds its
  // lock, and in a thread that is only half made.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int depth_ = 0;
};

// While it lives, this thread runs code of the program's that we called: its driver calls go
// through the hooks as if it had never been inside.
class HooksRestored {
 public:
  HooksRestored() : depth_before_(HookBypass::depth_) { HookBypass::depth_ = 0; }
  ~HooksRestored() { HookBypass::depth_ = depth_before_; }
  HooksRestored(const HooksRestored&) = delete;
  HooksRestored& operator=(const HooksRestored&) = delete;

 private:
  const int depth_before_;
};

}  // namespace cuvmm
