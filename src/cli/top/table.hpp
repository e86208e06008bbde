// SPDX-License-Identifier: Apache-2.0
// Processes as lines of text and as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output.hpp"
#include "cli/top/processes.hpp"

namespace cuvmm::cli {

enum class TopOrder { Physical, Live, Cached, Used, Moves, Process, Command, Container };
enum class Reversed : bool { No, Yes };

// Sorts in descending order, but by process number, command and container in ascending order. By
// container, those outside any come last, and those of one container are sorted by physical memory.
void sort_by(TopOrder order, Reversed reversed, std::vector<SeenProcess>& processes);

enum class WithHistory : bool { No, Yes };
struct TableForm {
  std::size_t width = 80;
  Letters letters = Letters::Ascii;
  WithHistory history = WithHistory::No;
};
// A heading and one line per process. The columns for users and containers are left out if they say
// nothing. To fit the form's width, less important columns are dropped first.
std::vector<std::string> table_of(const std::vector<SeenProcess>& processes, const TableForm& form);

// "3 processes hold 12.0 GiB, 80% of it used". `filter` is what chose them.
std::string total_of(const std::vector<SeenProcess>& processes, const TopFilter& filter);

nlohmann::json as_json(const Processes& processes);

}  // namespace cuvmm::cli
