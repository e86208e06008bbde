// SPDX-License-Identifier: Apache-2.0
// The Python stack of a thread that has released the interpreter's lock, as PyTorch does around its
// operators. Walking its frames then would be a race with other threads. Python's main thread can
// be asked to do it itself: it calls back once it has the lock again, which is right after the
// call into compiled code, in the same Python function and line.
#pragma once

#include <cstdint>

namespace cuvmm::stacks {

class StackTable;

// A number for this thread's stack, which a later event SampledAs gives a stack to. 0 if this is
// not the main thread, or Python does not run in it, or it does not come back to Python.
std::uint32_t stack_told_later(StackTable& table);

}  // namespace cuvmm::stacks
