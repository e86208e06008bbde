// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launched.hpp"
#include "node/container.hpp"
#include "share/figures.hpp"

namespace cuvmm::cli {

// The processes to show, and which of their devices. A device's number is the process' own ordinal.
struct TopFilter {
  std::vector<int> processes;  // empty: all
  std::optional<std::uint32_t> device;
  std::string container;  // the beginning of its ID or of its pod's UID; empty: all

  bool shows_all() const { return processes.empty() && !device && container.empty(); }
  bool shows(pid_t process) const {
    return processes.empty() || std::any_of(processes.begin(), processes.end(),
                                            [&](int named) { return names(named, process); });
  }
  // Whether the PID `named` means the process: its own, or that of a launcher that started it.
  static bool names(int named, pid_t process) {
    return named == process || (is_launcher(named) && !started_by(named, {process}).empty());
  }
  bool shows(const std::optional<node::Container>& which) const {
    return container.empty() || (which && which->is_named(container));
  }
  bool shows(const share::DeviceFigures& figures) const {
    return !device || figures.ordinal == *device;
  }
  bool shows(const share::Figures& figures) const {
    return !device ||
           std::any_of(figures.devices.begin(), figures.devices.begin() + figures.device_count,
                       [&](const auto& one) { return shows(one); });
  }
};

}  // namespace cuvmm::cli
