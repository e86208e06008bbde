// SPDX-License-Identifier: Apache-2.0
// The frames of compiled code on the calling thread's stack.
#pragma once

#include <span>
#include <string>

#include "trace/stacks/frame.hpp"

namespace cuvmm::stacks {

// Writes this thread's frames, innermost first, and returns how many. Leaves out cuvmm's own.
std::size_t native_frames(std::span<Frame> frames);

// "/usr/lib/libfoo.so+0x1234": the file, and the address as its symbol table counts. The reader of
// the trace looks up the function's name: doing so here could block on a library that another
// thread is loading.
std::string name_of_native(const Frame& frame);

}  // namespace cuvmm::stacks
