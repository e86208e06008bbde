// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "observe/snapshot.hpp"
#include "share/figures.hpp"

namespace cuvmm::observe {

enum class ShowsArguments : std::uint8_t { No, Yes };

// What this user's processes publish of themselves. Never waits: they are asked at one moment, and
// looked at later.
class PublishedProcesses {
 public:
  // Finds new processes and asks all for new figures.
  void ask();
  // Whether all have answered since. Takes in the answers that are there.
  bool look();

  // Adds the last answers to the clients of the same processes, and the other processes as clients
  // of their own.
  void add_to(Snapshot& snapshot, ShowsArguments arguments) const;

 private:
  struct Known {
    share::SeenFigures seen;
    bool answers = false;
  };
  std::vector<Known> all_;
};

}  // namespace cuvmm::observe
