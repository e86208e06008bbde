// SPDX-License-Identifier: Apache-2.0
// The Python frames of the calling thread, from the interpreter in this process, whichever version
// it is: its functions are looked up by name.
#pragma once

#include <span>
#include <string>

#include "trace/stacks/frame.hpp"

namespace cuvmm::stacks {

// Writes this thread's frames, innermost first, and returns how many. 0 if there is no interpreter,
// if this thread does not hold its lock, or if a Python exception is pending. Runs no Python code:
// the garbage collector is disabled meanwhile.
std::size_t python_frames(std::span<Frame> frames);

// Asks Python to call `back` on its main thread, with the interpreter's lock, when that thread next
// runs Python code. False if Python will not, as when the calling thread is not one of Python's.
bool will_call_back(int (*back)(void*));

// "forward (/home/me/model.py:42)". Call only while the frame is on this thread's stack. Keeps the
// code object forever, so that its address stays the name of the same code.
std::string name_of_python(const Frame& frame);

}  // namespace cuvmm::stacks
