// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/own_fd.hpp"
#include "base/result.hpp"

namespace cuvmm {

// A file created for this trace, or a device (/dev/null) in its place.
struct TraceFile {
  OwnFd fd;  // reads as closed if the program has closed our number
  std::string path;
  bool name_was_taken = false;  // a file of the requested name existed and was kept
  bool is_device = false;
};

// Creates a file accessible only by its owner (0600). In `pattern`, %p is the pid and %h the host
// name. An existing file is kept, and the pid is appended to the new name. A symbolic link, a
// folder or a pipe of that name is refused.
Result<TraceFile> create_trace_file(std::string_view pattern);

}  // namespace cuvmm
