// SPDX-License-Identifier: Apache-2.0
// Serves the commands of other processes, such as `cuvmm pause`, on the process's control socket.
#pragma once

namespace cuvmm {

class Control;

// Opens the socket and starts its thread, unless the process has them. Logs a warning and returns
// false if that fails. Call from one thread at a time.
bool serve_commands(Control& control);

// Exists during an operation. An exit in the meantime leaves the socket open, since the process
// may need it to be resumed; if it does not, this closes the socket once the operation is over.
class ClosesSocketOfEndingProcess {
 public:
  ClosesSocketOfEndingProcess() = default;
  ~ClosesSocketOfEndingProcess();
  ClosesSocketOfEndingProcess(const ClosesSocketOfEndingProcess&) = delete;
  ClosesSocketOfEndingProcess& operator=(const ClosesSocketOfEndingProcess&) = delete;
};

}  // namespace cuvmm
