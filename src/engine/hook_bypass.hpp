// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// While it lives, this thread runs cuvmm's own code: its driver calls, and the calls that the
// driver makes in turn, bypass every hook.
class HookBypass {
 public:
  HookBypass() { ++depth_; }
  ~HookBypass() { --depth_; }
  HookBypass(const HookBypass&) = delete;
  HookBypass& operator=(const HookBypass&) = delete;

  static bool is_active() { return depth_ != 0; }

 private:
  friend class HooksRestored;
  // Initial-exec, so that reading it calls no function: a lookup may happen while the loader holds
  // its lock, or on a thread that is not fully initialized.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int depth_ = 0;
};

// While it lives, this thread runs program code called by cuvmm: its driver calls go through the
// hooks as if no bypass were active.
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
