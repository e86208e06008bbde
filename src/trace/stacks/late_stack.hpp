// SPDX-License-Identifier: Apache-2.0
// The Python stack of a thread that has released the interpreter's lock, as PyTorch does around its
// operators. Walking its frames without the lock would race with other threads. Python's main
// thread can do so later: Python calls back on it once it holds the lock again, right after the
// call into compiled code, in the same Python function and line.
#pragma once

#include <cstdint>

namespace cuvmm::stacks {

class StackTable;

// Returns a number that stands for this thread's stack until a later SampledAs event names the
// stack. 0 if this is not the main thread, if Python does not run in it, or if it has not returned
// to Python for too many samples.
std::uint32_t stack_told_later(StackTable& table);

}  // namespace cuvmm::stacks
