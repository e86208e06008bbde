// SPDX-License-Identifier: Apache-2.0
// Translates one PTX instruction into one or more executable ones.
#include <algorithm>
#include <iterator>

#include "sim/interpreter/program_builder.hpp"
#include "sim/interpreter/warp_functions.hpp"

namespace cuvmm::sim {

bool ProgramBuilder::make_instruction(const ParsedInstruction& parsed) {
  const std::string_view op = parsed.opcode;
  if (op == "bra") return make_branch(parsed);
  if (op == "brx") return make_table_branch(parsed);
  if (op == "ret") return add(parsed, {.flow = Flow::Return});
  if (op == "exit") return add(parsed, {.flow = Flow::Exit});
  if (op == "trap") return add(parsed, {.flow = Flow::Trap});
  if (op == "ld" || op == "ldu" || op == "st") return make_access(parsed);
  if (op == "atom" || op == "red") return make_atomic(parsed);
  if (op == "cvta" || op == "isspacep") return make_space_instruction(parsed);
  if (op == "membar" || op == "fence") return add(parsed, {.execute = &run_fence});
  if (op == "prefetch" || op == "prefetchu" || op == "nanosleep" || op == "pmevent" ||
      op == "griddepcontrol") {
    return true;
  }
  if (op == "barrier" || (op == "bar" && !has(parsed, "warp"))) return make_barrier(parsed);
  if (op == "mov" && parsed.operands.size() == 2 &&
      (parsed.operands[0].kind == ParsedOperand::Kind::List ||
       parsed.operands[1].kind == ParsedOperand::Kind::List)) {
    return make_packing(parsed);
  }
  return make_by_choice(parsed);
}

bool ProgramBuilder::has(const ParsedInstruction& parsed, std::string_view modifier) {
  return std::find(parsed.modifiers.begin(), parsed.modifiers.end(), modifier) !=
         parsed.modifiers.end();
}

bool ProgramBuilder::make_branch(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 1) return false;
  fixes_.emplace_back(code_.size(), parsed.operands[0].name);
  return add(parsed, {.flow = Flow::Branch});
}

bool ProgramBuilder::make_table_branch(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2 || !has(parsed, "idx")) return unsupported(parsed);
  const auto index = resolve(parsed, parsed.operands[0], PtxType::U32, false);
  if (!index) return false;
  table_fixes_.emplace_back(code_.size(), parsed.operands[1].name);
  return add(parsed, {.a = index->at, .flow = Flow::BranchTable});
}

bool ProgramBuilder::make_barrier(const ParsedInstruction& parsed) {
  Modifiers modifiers{parsed.modifiers};
  modifiers.take("cta");
  modifiers.take("aligned");
  Instruction instruction{.flow = Flow::Barrier};
  std::size_t next = 0;
  const auto take = [&](PtxType type) -> std::uint32_t {
    const auto found = resolve(parsed, parsed.operands[next++], type, false);
    return found ? found->at : no_operand;
  };
  if (modifiers.take("arrive")) {
    instruction.variant = 1;
  } else if (modifiers.take("red")) {
    constexpr std::string_view kinds[] = {"popc", "and", "or"};
    for (std::size_t i = 0; i < std::size(kinds); ++i) {
      if (modifiers.take(kinds[i])) instruction.variant = static_cast<std::uint8_t>(i + 2);
    }
    const PtxType type = modifiers.take_type();
    if (instruction.variant == 0 || parsed.operands.size() < 3) return unsupported(parsed);
    instruction.d = take(type);
  } else if (!modifiers.take("sync")) {
    return unsupported(parsed);
  }
  if (!modifiers.empty()) return unsupported(parsed);
  const bool reduces = instruction.variant >= 2;
  const std::size_t plain = parsed.operands.size() - (reduces ? 1 : 0);
  if (next < plain) instruction.a = take(PtxType::U32);
  if (next < plain) instruction.b = take(PtxType::U32);
  if (reduces) {
    instruction.c_negated = parsed.operands[next].is_inverted;
    instruction.c = take(PtxType::Pred);
    if (instruction.c == no_operand) return false;
  }
  return unsupported_.empty() && add(parsed, instruction);
}

bool ProgramBuilder::make_by_choice(const ParsedInstruction& parsed) {
  Modifiers modifiers{parsed.modifiers};
  Choice choice;
  bool converges = false;
  for (const auto choose :
       {&choose_carrying, &choose_integer, &choose_bits, &choose_relation, &choose_comparison,
        &choose_conversion, &choose_float, &choose_short_float, &choose_dot_product}) {
    if (choice.execute == nullptr) choice = choose(parsed.opcode, modifiers);
  }
  if (choice.execute == nullptr) {
    choice = choose_warp_function(parsed.opcode, modifiers);
    converges = choice.execute != nullptr;
  }
  if (choice.execute == nullptr || !modifiers.empty() ||
      parsed.operands.size() != choice.types.size()) {
    return unsupported(parsed);
  }
  Instruction instruction{
      .execute = choice.execute, .immediate = choice.immediate, .variant = choice.variant};
  if (converges) return make_converging(parsed, choice, instruction);
  if (choice.float_mode != 0) {
    instruction.inner = choice.execute;
    instruction.execute = &run_in_float_mode;
    instruction.float_mode = choice.float_mode;
  }
  if (!set_operands(parsed, choice, instruction)) return unsupported(parsed);
  if (parsed.has_second) {
    if (parsed.opcode != "setp") return unsupported(parsed);
    const auto second = resolve(parsed, parsed.second, PtxType::Pred, false);
    if (!second) return false;
    instruction.e = second->at;
  }
  return add(parsed, instruction);
}

bool ProgramBuilder::set_operands(const ParsedInstruction& parsed, const Choice& choice,
                                  Instruction& instruction) {
  std::uint32_t* const places[] = {&instruction.d, &instruction.a, &instruction.b, &instruction.c,
                                   &instruction.e};
  for (std::size_t i = 0; i < choice.types.size(); ++i) {
    const ParsedOperand& operand = parsed.operands[i];
    if (i == 0 && operand.name == "_") continue;
    if (operand.is_inverted) {
      if (i != 3) return false;
      instruction.c_negated = true;
    }
    const auto resolved = resolve(parsed, operand, choice.types[i], choice.converts);
    if (!resolved) return false;
    *places[i] = resolved->at;
    if (i == 0) instruction.width_d = resolved->width;
    if (i == 1) instruction.width_a = resolved->width;
  }
  return true;
}

bool ProgramBuilder::make_converging(const ParsedInstruction& parsed, const Choice& choice,
                                     Instruction& instruction) {
  const bool is_barrier = parsed.opcode == "bar";
  const bool waits = parsed.opcode != "activemask";
  std::uint32_t* const places[] = {&instruction.d, &instruction.a, &instruction.b, &instruction.c};
  const std::size_t last = choice.types.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    const ParsedOperand& operand = parsed.operands[i];
    if (operand.is_inverted) instruction.c_negated = true;
    if (operand.name == "_" && i == 0 && !is_barrier) return unsupported(parsed);
    const auto resolved = resolve(parsed, operand, choice.types[i], false);
    if (!resolved) return false;
    if (i == last && waits) {
      instruction.e = resolved->at;
    } else {
      *places[i] = resolved->at;
    }
  }
  if (parsed.has_second) {
    const auto second = resolve(parsed, parsed.second, PtxType::Pred, false);
    if (!second) return false;
    instruction.first = second->at;
    instruction.count = 1;
  }
  instruction.flow = Flow::Converge;
  return add(parsed, instruction);
}

}  // namespace cuvmm::sim
