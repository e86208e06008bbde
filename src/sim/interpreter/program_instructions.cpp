// SPDX-License-Identifier: Apache-2.0
// One instruction of the text, as one or more that run.
#include <algorithm>
#include <iterator>

#include "sim/interpreter/host_functions.hpp"
#include "sim/interpreter/lane_moves.hpp"
#include "sim/interpreter/program_maker.hpp"
#include "sim/interpreter/warp_functions.hpp"

namespace cuvmm::sim {

bool ProgramMaker::make_instruction(const ParsedInstruction& parsed) {
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

bool ProgramMaker::has(const ParsedInstruction& parsed, std::string_view modifier) {
  return std::find(parsed.modifiers.begin(), parsed.modifiers.end(), modifier) !=
         parsed.modifiers.end();
}

bool ProgramMaker::make_branch(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 1) return false;
  fixes_.emplace_back(code_.size(), parsed.operands[0].name);
  return add(parsed, {.flow = Flow::Branch});
}

bool ProgramMaker::make_table_branch(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2 || !has(parsed, "idx")) return lack(parsed);
  const auto index = resolve(parsed, parsed.operands[0], PtxType::U32, false);
  if (!index) return false;
  table_fixes_.emplace_back(code_.size(), parsed.operands[1].name);
  return add(parsed, {.a = index->at, .flow = Flow::BranchTable});
}

bool ProgramMaker::make_barrier(const ParsedInstruction& parsed) {
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
    if (instruction.variant == 0 || parsed.operands.size() < 3) return lack(parsed);
    instruction.d = take(type);
  } else if (!modifiers.take("sync")) {
    return lack(parsed);
  }
  if (!modifiers.empty()) return lack(parsed);
  const bool reduces = instruction.variant >= 2;
  const std::size_t plain = parsed.operands.size() - (reduces ? 1 : 0);
  if (next < plain) instruction.a = take(PtxType::U32);
  if (next < plain) instruction.b = take(PtxType::U32);
  if (reduces) {
    instruction.c_negated = parsed.operands[next].is_inverted;
    instruction.c = take(PtxType::Pred);
    if (instruction.c == no_operand) return false;
  }
  return lacking_.empty() && add(parsed, instruction);
}

std::optional<PtxStateSpace> ProgramMaker::take_space(Modifiers& modifiers) {
  if (modifiers.take("global")) return PtxStateSpace::Global;
  if (modifiers.take("shared")) return PtxStateSpace::Shared;
  if (modifiers.take("local")) return PtxStateSpace::Local;
  if (modifiers.take("param")) return PtxStateSpace::Param;
  if (modifiers.take("const")) return PtxStateSpace::Const;
  return std::nullopt;
}

bool ProgramMaker::take_cache_words(Modifiers& modifiers) {
  for (const std::string_view word :
       {"weak", "volatile", "relaxed", "sys", "gpu", "cta", "cluster", "ca", "cg", "cs", "lu", "cv",
        "wb", "wt", "nc", "noftz", "L2", "L1"}) {
    modifiers.take(word);
  }
  const bool acquires = modifiers.take("acquire");
  const bool releases = modifiers.take("release");
  const bool both = modifiers.take("acq_rel");
  return acquires || releases || both;
}

bool ProgramMaker::place_address(const ParsedInstruction& parsed, const ParsedOperand& operand,
                                 PtxStateSpace& space, Instruction& instruction) {
  if (operand.kind != ParsedOperand::Kind::Address) return false;
  instruction.immediate = operand.displacement;
  instruction.width_a = 8;
  if (operand.name.empty()) {
    instruction.a = registers_.constant(0, 8);
    return true;
  }
  if (const auto place = names_.find_register(operand.name)) {
    if (place->width != 8 && place->width != 4) return lack(parsed);
    instruction.a = place->at;
    instruction.width_a = place->width;
    if (space == PtxStateSpace::Param) space = PtxStateSpace::Generic;
    return true;
  }
  if (const SymbolPlace* symbol = names_.find_symbol(operand.name)) {
    if (symbol->space == PtxStateSpace::Param) {
      space = PtxStateSpace::Generic;
      instruction.a = registers_.special(SpecialRegister::ParameterBase, 8);
      instruction.immediate += static_cast<std::int64_t>(symbol->offset);
      return true;
    }
    space = symbol->space;
    instruction.a = symbol->is_dynamic ? registers_.special(SpecialRegister::DynamicSharedBase, 8)
                                       : registers_.constant(symbol->offset, 8);
    return true;
  }
  const auto address = find_variable_(operand.name);
  if (!address) return lack("the name " + std::string{operand.name});
  instruction.a = registers_.constant(*address, 8);
  return true;
}

bool ProgramMaker::make_access(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2) return lack(parsed);
  const bool loads = parsed.opcode != "st";
  Modifiers modifiers{parsed.modifiers};
  const bool orders = take_cache_words(modifiers);
  MemoryAccess access;
  access.space = take_space(modifiers).value_or(PtxStateSpace::Generic);
  if (modifiers.take("v2")) access.values = 2;
  if (modifiers.take("v4")) access.values = 4;
  if (modifiers.take("v8")) access.values = 8;
  access.type = modifiers.take_type();
  // Prefetch sizes and eviction priorities.
  while (!modifiers.empty() &&
         (modifiers.first() == "unified" || modifiers.first().substr(0, 1) == "L")) {
    modifiers.drop_first();
  }
  if (!modifiers.empty()) return lack(parsed);
  const ParsedOperand& address = parsed.operands[loads ? 1 : 0];
  const ParsedOperand& value = parsed.operands[loads ? 0 : 1];
  Instruction instruction;
  if (!place_address(parsed, address, access.space, instruction)) return lack(parsed);
  instruction.execute = loads ? load_of(access) : store_of(access);
  if (instruction.execute == nullptr) return lack(parsed);
  instruction.first = static_cast<std::uint32_t>(program_.operands.size());
  instruction.count = static_cast<std::uint8_t>(access.values);
  const std::vector<ParsedOperand> alone{value};
  const auto& values = value.kind == ParsedOperand::Kind::List ? value.list : alone;
  if (values.size() != access.values) return false;
  for (const ParsedOperand& one : values) {
    if (one.name == "_") {
      program_.operands.push_back({});
      continue;
    }
    const auto resolved = resolve(parsed, one, access.type, true);
    if (!resolved) return lack(parsed);
    program_.operands.push_back({resolved->at, resolved->width});
  }
  return with_fences(parsed, instruction, orders);
}

bool ProgramMaker::with_fences(const ParsedInstruction& parsed, const Instruction& instruction,
                               bool orders) {
  if (!orders) return add(parsed, instruction);
  return add(parsed, {.execute = &run_fence}) && add(parsed, instruction) &&
         add(parsed, {.execute = &run_fence});
}

bool ProgramMaker::make_atomic(const ParsedInstruction& parsed) {
  const bool returns = parsed.opcode == "atom";
  Modifiers modifiers{parsed.modifiers};
  const bool orders = take_cache_words(modifiers);
  AtomicAccess access;
  access.space = take_space(modifiers).value_or(PtxStateSpace::Generic);
  access.type = modifiers.take_type();
  access.operation = modifiers.first();
  if (!access.operation.empty()) modifiers.drop_first();
  const Execute execute = atomic_of(access);
  const std::size_t sources = access.operation == "cas" ? 2 : 1;
  const std::size_t first = returns ? 1 : 0;
  if (execute == nullptr || !modifiers.empty() || parsed.operands.size() != first + 1 + sources) {
    return lack(parsed);
  }
  Instruction instruction{.execute = execute};
  if (!place_address(parsed, parsed.operands[first], access.space, instruction))
    return lack(parsed);
  if (returns && parsed.operands[0].name != "_") {
    const auto d = resolve(parsed, parsed.operands[0], access.type, false);
    if (!d) return false;
    instruction.d = d->at;
  }
  const auto b = resolve(parsed, parsed.operands[first + 1], access.type, false);
  if (!b) return false;
  instruction.b = b->at;
  if (sources == 2) {
    const auto c = resolve(parsed, parsed.operands[first + 2], access.type, false);
    if (!c) return false;
    instruction.c = c->at;
  }
  return with_fences(parsed, instruction, orders);
}

bool ProgramMaker::make_space_instruction(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2) return lack(parsed);
  Modifiers modifiers{parsed.modifiers};
  const bool tests = parsed.opcode == "isspacep";
  const bool from_generic = modifiers.take("to");
  const auto space = take_space(modifiers);
  const PtxType type = tests ? PtxType::U64 : modifiers.take_type();
  if (!space || !modifiers.empty()) return lack(parsed);
  const auto d = resolve(parsed, parsed.operands[0], tests ? PtxType::Pred : type, false);
  const auto a = resolve(parsed, parsed.operands[1], type, true);
  if (!d || !a) return false;
  const bool is_own_address = *space == PtxStateSpace::Shared || *space == PtxStateSpace::Local;
  if (!tests && !is_own_address && d->width == a->width) {
    Modifiers copies{{d->width == 8 ? "b64" : "b32"}};
    return add(parsed, {.execute = choose_bits("mov", copies).execute, .d = d->at, .a = a->at});
  }
  return add(parsed, {.execute = tests          ? &run_is_in_space
                                 : from_generic ? &run_from_generic
                                                : &run_to_generic,
                      .d = d->at,
                      .a = a->at,
                      .width_d = d->width,
                      .width_a = a->width,
                      .variant = static_cast<std::uint8_t>(*space)});
}

bool ProgramMaker::make_packing(const ParsedInstruction& parsed) {
  Modifiers modifiers{parsed.modifiers};
  const PtxType type = modifiers.take_type();
  const bool packs = parsed.operands[1].kind == ParsedOperand::Kind::List;
  const auto& list = parsed.operands[packs ? 1 : 0].list;
  const unsigned part = list.empty() ? 0 : size_of(type) / static_cast<unsigned>(list.size());
  const PtxType part_type = part == 4   ? PtxType::B32
                            : part == 2 ? PtxType::B16
                            : part == 1 ? PtxType::B8
                                        : PtxType::Other;
  if (!modifiers.empty() || part_type == PtxType::Other) return lack(parsed);
  const auto whole = resolve(parsed, parsed.operands[packs ? 0 : 1], type, false);
  if (!whole) return false;
  Instruction instruction{.execute = packs ? &run_pack : &run_unpack,
                          .a = whole->at,
                          .first = static_cast<std::uint32_t>(program_.operands.size()),
                          .count = static_cast<std::uint8_t>(list.size()),
                          .width_a = whole->width,
                          .variant = static_cast<std::uint8_t>(part)};
  for (const ParsedOperand& one : list) {
    if (one.name == "_") {
      program_.operands.push_back({});
      continue;
    }
    const auto resolved = resolve(parsed, one, part_type, true);
    if (!resolved) return false;
    program_.operands.push_back({resolved->at, resolved->width});
  }
  return add(parsed, instruction);
}

bool ProgramMaker::make_by_choice(const ParsedInstruction& parsed) {
  Modifiers modifiers{parsed.modifiers};
  Choice choice = choose_integer(parsed.opcode, modifiers);
  bool meets = false;
  for (const auto choose : {&choose_bits, &choose_comparison, &choose_conversion, &choose_float}) {
    if (choice.execute == nullptr) choice = choose(parsed.opcode, modifiers);
  }
  if (choice.execute == nullptr) {
    choice = choose_warp_function(parsed.opcode, modifiers);
    meets = choice.execute != nullptr;
  }
  if (choice.execute == nullptr || !modifiers.empty() ||
      parsed.operands.size() != choice.types.size()) {
    return lack(parsed);
  }
  Instruction instruction{.execute = choice.execute, .variant = choice.variant};
  if (meets) return make_meeting(parsed, choice, instruction);
  if (choice.float_mode != 0) {
    instruction.inner = choice.execute;
    instruction.execute = &run_in_float_mode;
    instruction.float_mode = choice.float_mode;
  }
  if (!set_operands(parsed, choice, instruction)) return lack(parsed);
  if (parsed.has_second) {
    if (parsed.opcode != "setp") return lack(parsed);
    const auto second = resolve(parsed, parsed.second, PtxType::Pred, false);
    if (!second) return false;
    instruction.e = second->at;
  }
  return add(parsed, instruction);
}

bool ProgramMaker::set_operands(const ParsedInstruction& parsed, const Choice& choice,
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

bool ProgramMaker::make_meeting(const ParsedInstruction& parsed, const Choice& choice,
                                Instruction& instruction) {
  const bool is_barrier = parsed.opcode == "bar";
  const bool waits = parsed.opcode != "activemask";
  std::uint32_t* const places[] = {&instruction.d, &instruction.a, &instruction.b, &instruction.c};
  const std::size_t last = choice.types.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    const ParsedOperand& operand = parsed.operands[i];
    if (operand.is_inverted) instruction.c_negated = true;
    if (operand.name == "_" && i == 0 && !is_barrier) return lack(parsed);
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
  instruction.flow = Flow::Meet;
  return add(parsed, instruction);
}

bool ProgramMaker::make_call(const ParsedInstruction& parsed, const ParsedCall& call) {
  if (call.is_indirect) return lack("calls through pointers");
  const auto find_all = [&](const std::vector<std::string_view>& names,
                            std::vector<SymbolPlace>& places) {
    for (const std::string_view name : names) {
      const SymbolPlace* place = names_.find_symbol(name);
      if (place == nullptr || place->space != PtxStateSpace::Local) return false;
      places.push_back(*place);
    }
    return true;
  };
  std::vector<SymbolPlace> arguments;
  std::vector<SymbolPlace> results;
  if (!find_all(call.arguments, arguments) || !find_all(call.results, results)) {
    return lack("a call with arguments in registers");
  }
  const auto found = functions_.find(call.function);
  if (found == functions_.end()) return lack("the function " + std::string{call.function});
  FunctionText& callee = found->second;
  if (callee.text.empty()) return make_host_call(parsed, call.function, arguments, results);
  if (!callee.is_made) {
    const std::uint32_t text = text_now_;
    auto tables = std::move(tables_);
    auto table_fixes = std::move(table_fixes_);
    tables_.clear();
    table_fixes_.clear();
    NameScopes outer = names_;
    while (names_.depth() > 1) names_.close();
    if (!function(found->first, callee, false)) return false;
    names_ = std::move(outer);
    tables_ = std::move(tables);
    table_fixes_ = std::move(table_fixes);
    text_now_ = text;
  }
  if (callee.is_being_made) return lack("a function that calls itself");
  if (arguments.size() != callee.parameters.size() || results.size() != callee.results.size()) {
    return false;
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!copy(parsed, callee.parameters[i], arguments[i])) return false;
  }
  if (!add(parsed, {.target = callee.entry, .flow = Flow::Call})) return false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!copy(parsed, results[i], callee.results[i])) return false;
  }
  return true;
}

bool ProgramMaker::copy(const ParsedInstruction& parsed, const SymbolPlace& to,
                        const SymbolPlace& from) {
  return add(parsed, {.execute = &run_local_copy,
                      .d = static_cast<std::uint32_t>(to.offset),
                      .a = static_cast<std::uint32_t>(from.offset),
                      .immediate = static_cast<std::int64_t>(std::min(to.size, from.size))});
}

bool ProgramMaker::make_host_call(const ParsedInstruction& parsed, std::string_view name,
                                  const std::vector<SymbolPlace>& arguments,
                                  const std::vector<SymbolPlace>& results) {
  const HostFunction* function = find_host_function(name);
  if (function == nullptr) return lack("the function " + std::string{name});
  if (arguments.size() != function->arguments) return false;
  Instruction instruction{.execute = function->execute,
                          .first = static_cast<std::uint32_t>(program_.operands.size())};
  for (const SymbolPlace& argument : arguments) {
    program_.operands.push_back(
        {static_cast<std::uint32_t>(argument.offset), static_cast<std::uint8_t>(argument.size)});
  }
  instruction.count = static_cast<std::uint8_t>(arguments.size());
  if (!results.empty()) instruction.d = static_cast<std::uint32_t>(results[0].offset);
  return add(parsed, instruction);
}

}  // namespace cuvmm::sim
