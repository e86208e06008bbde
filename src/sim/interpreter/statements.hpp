// SPDX-License-Identifier: Apache-2.0
// Parses PTX statements, without interpreting them.
#pragma once

#include <optional>

#include "sim/interpreter/selection.hpp"
#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

// Reads an instruction including its semicolon. Fails if the text is not one.
std::optional<ParsedInstruction> read_instruction(PtxTokens& tokens);

// The operands of `call.uni (result), function, (arguments), prototype;`, read from after the
// opcode and its modifiers.
struct ParsedCall {
  std::vector<std::string_view> results;
  std::string_view function;
  std::vector<std::string_view> arguments;
  bool is_indirect = false;
};
std::optional<ParsedCall> read_call(PtxTokens& tokens);

// A declaration without its state space: `.align 8 .b8 name[16]`.
struct ParsedVariable {
  std::string_view name;
  PtxType type = PtxType::Other;
  Size size = 0;  // 0: the launch decides
  Size alignment = 1;
};
std::optional<ParsedVariable> read_variable(PtxTokens& tokens);

// Accepts ".u32" and "u32".
PtxType read_ptx_type(std::string_view word);

}  // namespace cuvmm::sim
