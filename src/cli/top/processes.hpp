// SPDX-License-Identifier: Apache-2.0
// The processes of this user that run under cuvmm, as they say of themselves.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/filter.hpp"
#include "share/figures.hpp"

namespace cuvmm::cli {

// All devices of one process that are shown, together.
struct MemoryNow {
  Size live = 0;
  Size cached = 0;
  Size physical = 0;
  std::optional<Size> limit;  // nothing: at least one device has none
  Size spilled = 0;
  std::uint64_t moves = 0;
  Size moved = 0;

  // The share of the physical memory that is somebody's; nothing where there is none.
  std::optional<double> utilisation() const;
};

class SeenProcess {
 public:
  SeenProcess(share::SeenFigures seen, std::optional<int> device)
      : seen_(std::move(seen)), device_(device) {}

  share::SeenFigures& seen() { return seen_; }
  const share::Publisher& who() const { return seen_.publisher(); }
  const share::Figures& figures() const { return seen_.figures(); }
  // Nothing where the process does not count its memory, or has never answered.
  std::optional<MemoryNow> memory() const;
  std::string command() const;  // fit to be shown
  std::string devices() const;  // those it uses, of those that are shown: "0,1"

  bool answers() const { return answers_; }
  std::uint64_t silent_for_us() const;
  // The last of them last.
  const std::deque<std::optional<double>>& history() const { return history_; }
  void note(bool answered);

 private:
  share::SeenFigures seen_;
  std::optional<int> device_;  // the only one that counts
  bool answers_ = false;
  std::deque<std::optional<double>> history_;
};

class Processes {
 public:
  explicit Processes(TopFilter filter) : filter_(std::move(filter)) {}

  // Asks all and waits a moment for their answers. Who has ended is dropped, and its file removed.
  void sample();

  const std::vector<SeenProcess>& all() const { return all_; }
  std::vector<SeenProcess>& all() { return all_; }
  // Folders and files that could not be looked at, with the reason.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void find();
  void wait_for_answers();

  const TopFilter filter_;
  std::vector<SeenProcess> all_;
  std::vector<std::string> problems_;
};

}  // namespace cuvmm::cli
