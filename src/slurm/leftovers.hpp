// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm::slurm {

// Removes the sockets and figures that killed processes have left in a user's folder, and the
// folder once it is empty. Keeps files of living processes and of other PID namespaces, and all
// other files. Call this as that user.
void remove_leftovers(const std::string& folder);

}  // namespace cuvmm::slurm
