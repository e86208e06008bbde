// SPDX-License-Identifier: Apache-2.0
// Reads the instructions of PTX text, without knowing what they mean.
#pragma once

#include <optional>

#include "sim/interpreter/selection.hpp"
#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

// At an instruction: reads up to and with its semicolon. Nothing where it is none.
std::optional<ParsedInstruction> read_instruction(PtxTokens& tokens);

// What calls name: `call.uni (result), function, (arguments), prototype;`, at what follows the
// opcode and its modifiers.
struct ParsedCall {
  std::vector<std::string_view> results;
  std::string_view function;
  std::vector<std::string_view> arguments;
  bool is_indirect = false;
};
std::optional<ParsedCall> read_call(PtxTokens& tokens);

// A declaration behind its state space: `.align 8 .b8 name[16]`.
struct ParsedVariable {
  std::string_view name;
  PtxType type = PtxType::Other;
  Size size = 0;  // 0: as large as the launch says
  Size alignment = 1;
};
std::optional<ParsedVariable> read_variable(PtxTokens& tokens);

// ".u32" and "u32".
PtxType read_ptx_type(std::string_view word);

}  // namespace cuvmm::sim
