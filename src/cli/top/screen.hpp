// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace cuvmm::cli {

// The terminal as one picture that is drawn again and again. It is as before when this ends,
// whether by a key or by a signal.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) const;

  // Keys that were pressed; nothing where none was within that time, or the size changed. An end of
  // the input, or a signal that asks to end, is a 'q'.
  std::string keys(Duration at_most) const;

  static std::size_t width();
  static std::size_t height();

 private:
  termios before_{};
};

}  // namespace cuvmm::cli
