// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace cuvmm::cli {

// The names of a program's traces if the requested name is taken: existing files are kept, and each
// process writes to NAME.PID instead.
class TraceNames {
 public:
  // Create this before the program runs. A name with %p is never taken.
  explicit TraceNames(const std::string& pattern);

  // Call this after the program has run. Returns one line that names the file written instead;
  // empty if the requested name was used.
  std::string renamed_note() const;
  // The traces that the run wrote; that of `process` comes first.
  std::vector<std::string> written(pid_t process) const;

 private:
  std::set<std::string> beside() const;  // NAME.PID, NAME.PID.1, ... that exist

  std::string pattern_;
  std::string name_;
  bool was_taken_ = false;
  std::set<std::string> before_;
};

}  // namespace cuvmm::cli
