// SPDX-License-Identifier: Apache-2.0
// Processes under cuvmm, with the figures they publish.
#pragma once

#include <cstdint>
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
  SeenProcess(share::SeenFigures seen, std::optional<std::uint32_t> device);

  share::SeenFigures& seen() { return seen_; }
  const share::SeenFigures& seen() const { return seen_; }
  pid_t number() const { return seen_.process(); }
  const share::Publisher& who() const { return seen_.publisher(); }
  const share::Figures& figures() const { return seen_.figures(); }
  // Returns nothing if the process does not count its memory or has never answered.
  std::optional<MemoryNow> memory() const;
  std::string command() const;  // safe to print
  std::string devices() const;  // the shown devices that it uses, such as "0,1"
  const std::string& user() const { return user_; }
  bool is_of_this_user() const;
  const std::optional<node::Container>& container() const { return container_; }

  bool answers() const { return answers_; }
  std::uint64_t silent_for_us() const;
  // Oldest first.
  const std::deque<std::optional<double>>& history() const { return history_; }
  void note(bool answered);

 private:
  share::SeenFigures seen_;
  std::optional<std::uint32_t> device_;  // if set, only this device counts
  std::string user_;                     // safe to print
  std::optional<node::Container> container_;
  bool answers_ = false;
  std::deque<std::optional<double>> history_;
};

// Everywhere: processes of all users and in all containers, for root.
enum class TopReach : bool { OwnFolders, Everywhere };

class Processes {
 public:
  Processes(TopFilter filter, TopReach reach) : filter_(std::move(filter)), reach_(reach) {}

  // Asks all processes and waits briefly for their answers. Drops processes that have ended, and
  // removes their files from this user's folders.
  void sample();

  const std::vector<SeenProcess>& all() const { return all_; }
  std::vector<SeenProcess>& all() { return all_; }
  // Folders and files that could not be read, with the reason.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void find();
  void find_in_own_folders();
  void find_everywhere();
  void add(Result<share::SeenFigures> seen, const std::string& path,
           std::vector<std::string>& problems);
  void wait_for_answers();

  const TopFilter filter_;
  const TopReach reach_;
  std::uint64_t next_search_us_ = 0;  // everywhere
  std::vector<SeenProcess> all_;
  std::vector<std::string> problems_;
  std::vector<std::string> problems_everywhere_;  // of the last search
};

}  // namespace cuvmm::cli
