// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace cuvmm::cli {

// A full-screen view that is redrawn repeatedly. The destructor restores the terminal, whether a
// key or a signal ends the view.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) const;

  // The keys pressed; empty if there were none within that time or the size changed. End of input
  // and a terminating signal count as 'q'.
  std::string keys(Duration at_most) const;

  static std::size_t width();
  static std::size_t height();

 private:
  termios before_{};
};

}  // namespace cuvmm::cli
