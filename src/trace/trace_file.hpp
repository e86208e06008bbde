// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/own_fd.hpp"
#include "base/result.hpp"

namespace cuvmm {

// A file that was made for this trace, or a device (/dev/null) that stands for one.
struct TraceFile {
  OwnFd fd;  // closed where the program has closed our number
  std::string path;
  bool name_was_taken = false;  // a file of the name asked for existed and was kept
  bool is_device = false;
};

// Makes a file for its owner alone (0600). In `pattern`, %p is the process and %h the host. What
// exists is kept: then the name gets the process' number at its end. A symbolic link, a folder or a
// pipe of that name is refused.
Result<TraceFile> create_trace_file(std::string_view pattern);

}  // namespace cuvmm
