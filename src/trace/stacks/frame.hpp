// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuvmm::stacks {

// One entry of a call stack.
struct Frame {
  std::uint64_t code = 0;  // Python: the code object; otherwise the return address
  std::uint32_t line = 0;  // Python: the line; otherwise 0
  bool is_python = false;
};

inline constexpr std::size_t most_frames = 64;  // the innermost ones

}  // namespace cuvmm::stacks
