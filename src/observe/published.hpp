// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "observe/snapshot.hpp"
#include "share/figures.hpp"

namespace cuvmm::observe {

enum class ShowsArguments : std::uint8_t { No, Yes };

// The figures that this user's processes publish. Never waits: ask() requests figures, look()
// collects them later.
class PublishedProcesses {
 public:
  // Finds new processes and asks all processes for new figures.
  void ask();
  // Collects the answers that have arrived. Returns whether all processes have answered.
  bool look();

  // Adds the last answers to the clients of the same processes. Other processes become additional
  // clients.
  void add_to(Snapshot& snapshot, ShowsArguments arguments) const;

 private:
  struct Known {
    share::SeenFigures seen;
    bool answers = false;
  };
  std::vector<Known> all_;
};

}  // namespace cuvmm::observe
