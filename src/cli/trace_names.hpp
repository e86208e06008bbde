// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace cuvmm::cli {

// Where a program's traces go when the name that was asked for is taken: what exists is kept, and
// each process writes to NAME.PID instead.
class TraceNames {
 public:
  // Before the program runs. A name with %p is never taken.
  explicit TraceNames(const std::string& pattern);

  // After it has run: one line that names what was written instead; empty where all is as asked.
  std::string what_was_written_instead() const;
  // The traces that the run left, that of the process first.
  std::vector<std::string> written(pid_t process) const;

 private:
  std::set<std::string> beside() const;  // NAME.PID, NAME.PID.1, ... that exist

  std::string pattern_;
  std::string name_;
  bool was_taken_ = false;
  std::set<std::string> before_;
};

}  // namespace cuvmm::cli
