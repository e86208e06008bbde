// SPDX-License-Identifier: Apache-2.0
// This user's processes under cuvmm, with the figures they publish.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/filter.hpp"
#include "share/figures.hpp"

namespace cuvmm::cli {

// Totals over the shown devices of one process.
struct MemoryNow {
  Size live = 0;
  Size cached = 0;
  Size physical = 0;
  std::optional<Size> limit;  // nothing if at least one device has no limit
  Size spilled = 0;
  std::uint64_t moves = 0;
  Size moved = 0;

  // The share of physical memory in use; nothing if there is no physical memory.
  std::optional<double> utilisation() const;
};

class SeenProcess {
 public:
  SeenProcess(share::SeenFigures seen, std::optional<int> device)
      : seen_(std::move(seen)), device_(device) {}

  share::SeenFigures& seen() { return seen_; }
  const share::Publisher& who() const { return seen_.publisher(); }
  const share::Figures& figures() const { return seen_.figures(); }
  // Returns nothing if the process does not count its memory or has never answered.
  std::optional<MemoryNow> memory() const;
  std::string command() const;  // safe to print
  std::string devices() const;  // the shown devices that it uses, such as "0,1"

  bool answers() const { return answers_; }
  std::uint64_t silent_for_us() const;
  // Oldest first.
  const std::deque<std::optional<double>>& history() const { return history_; }
  void note(bool answered);

 private:
  share::SeenFigures seen_;
  std::optional<int> device_;  // if set, only this device counts
  bool answers_ = false;
  std::deque<std::optional<double>> history_;
};

class Processes {
 public:
  explicit Processes(TopFilter filter) : filter_(std::move(filter)) {}

  // Asks all processes and waits briefly for their answers. Drops processes that have ended, and
  // removes their files.
  void sample();

  const std::vector<SeenProcess>& all() const { return all_; }
  std::vector<SeenProcess>& all() { return all_; }
  // Folders and files that could not be read, with the reason.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void find();
  void wait_for_answers();

  const TopFilter filter_;
  std::vector<SeenProcess> all_;
  std::vector<std::string> problems_;
};

}  // namespace cuvmm::cli
