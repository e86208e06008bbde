// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace cuvmm::cli {

// Finds the traces of one run of a program. Existing files are kept, so that each process whose
// name is taken writes to NAME.PID instead. Other runs may write to the same names at the same
// time; a trace's header tells whose it is.
class TraceNames {
 public:
  // Create this before the program runs.
  explicit TraceNames(const std::string& pattern);

  // The folder that the traces would go to, if it does not exist; empty if it does.
  std::string missing_folder() const;
  // Fails, with the folder, if no trace can be created there.
  Result<void> check_folder() const;
  // Sets the variable that the traces' headers will show.
  void mark_environment() const;

  // Call these after the program has run. Returns one line that names the file written instead;
  // empty if the requested name was used.
  std::string renamed_note() const;
  // Whether a file has the requested name, so that the trace gets another.
  bool is_taken() const { return was_taken_; }
  // The traces that the run wrote; that of `process` comes first, if it wrote one.
  std::vector<std::string> written(pid_t process) const;

 private:
  std::set<std::string> candidates() const;

  std::string pattern_;
  std::string mark_;  // of this run, in its traces
  bool was_taken_ = false;
  std::set<std::string> before_;
};

}  // namespace cuvmm::cli
