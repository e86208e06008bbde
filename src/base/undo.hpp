// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace cuvmm {

// Rolls back at the end of the scope, unless keep() is called:
//
//   Undo undo{[&] { driver.cuMemRelease(handle); }};
//   TRY(what_may_fail());
//   undo.keep();
template <class Action>
class [[nodiscard]] Undo {
 public:
  explicit Undo(Action action) noexcept : action_(std::move(action)) {
    static_assert(noexcept(Action(std::move(action))), "moving the action must not fail");
  }
  Undo(Undo&& other) noexcept
      : action_(std::move(other.action_)), kept_(std::exchange(other.kept_, true)) {}
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  Undo& operator=(Undo&&) = delete;
  ~Undo() {
    if (!kept_) action_();
  }

  void keep() noexcept { kept_ = true; }

 private:
  Action action_;
  bool kept_ = false;
};

}  // namespace cuvmm
