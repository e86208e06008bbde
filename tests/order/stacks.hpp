// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm::order {

// Prints the stack of every thread of this process to standard error. A thread that is blocked in
// the driver shows who called it.
void print_stacks_of_all_threads();

}  // namespace cuvmm::order
