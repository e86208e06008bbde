// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm::slurm {

// Removes the sockets and figures that killed processes have left in a user's folder for them, and
// the folder once it is empty. Files of living processes, of other PID namespaces, and all others
// stay. To be called as that user.
void remove_leftovers(const std::string& folder);

}  // namespace cuvmm::slurm
