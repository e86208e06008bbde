// SPDX-License-Identifier: Apache-2.0
// Runs a few lines of PTX for many operands at once and compares each instruction's results with
// the host's, on the simulated driver and on a card alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "streams_support.hpp"

namespace cuvmm::test {

// Operands of one thread, 64 bits each, whatever their type.
struct PtxOperands {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
};

struct PtxLines {
  std::string operand_type;  // of %a, %b and %c: "u32"
  std::string result_type;   // of %d
  std::string lines;         // "add.u32 %d, %a, %b;"
  std::string declarations = {};
  std::string module_text = {};  // variables and functions before the entry
  unsigned threads_per_block = 128;
  std::size_t shared_bytes = 0;
  std::string target = "sm_80";
};

// Returns the final %d of each thread. Beside the operands the lines may use %t (u32, the thread's
// index in the grid), %p, %q (predicates), %x, %y (b32), %w (b64), and [%memory], 4 KiB of zeroed
// memory that all threads share.
std::vector<std::uint64_t> run_ptx(const PtxLines& lines, const std::vector<PtxOperands>& operands);

// Boundary values of arithmetic, combined, and random values.
std::vector<PtxOperands> integer_operands(unsigned bits);
std::vector<PtxOperands> float_operands(unsigned bits);

}  // namespace cuvmm::test
