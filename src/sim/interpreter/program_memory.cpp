// SPDX-License-Identifier: Apache-2.0
// Translates instructions that access memory, convert addresses, or pack and unpack registers.
#include "sim/interpreter/lane_moves.hpp"
#include "sim/interpreter/program_builder.hpp"

namespace cuvmm::sim {

std::optional<PtxStateSpace> ProgramBuilder::take_space(Modifiers& modifiers) {
  if (modifiers.take("global")) return PtxStateSpace::Global;
  if (modifiers.take("shared")) return PtxStateSpace::Shared;
  if (modifiers.take("local")) return PtxStateSpace::Local;
  if (modifiers.take("param")) return PtxStateSpace::Param;
  if (modifiers.take("const")) return PtxStateSpace::Const;
  return std::nullopt;
}

bool ProgramBuilder::take_cache_words(Modifiers& modifiers) {
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

bool ProgramBuilder::place_address(const ParsedInstruction& parsed, const ParsedOperand& operand,
                                   PtxStateSpace& space, Instruction& instruction) {
  if (operand.kind != ParsedOperand::Kind::Address) return false;
  instruction.immediate = operand.displacement;
  instruction.width_a = 8;
  if (operand.name.empty()) {
    instruction.a = registers_.constant(0, 8);
    return true;
  }
  if (const auto place = names_.find_register(operand.name)) {
    if (place->width != 8 && place->width != 4) return unsupported(parsed);
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
  if (!address) return unsupported("the name " + std::string{operand.name});
  instruction.a = registers_.constant(*address, 8);
  return true;
}

bool ProgramBuilder::make_access(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2) return unsupported(parsed);
  const bool loads = parsed.opcode != "st";
  Modifiers modifiers{parsed.modifiers};
  const bool orders = take_cache_words(modifiers);
  MemoryAccess access;
  access.space = take_space(modifiers).value_or(PtxStateSpace::Generic);
  if (modifiers.take("v2")) access.values = 2;
  if (modifiers.take("v4")) access.values = 4;
  if (modifiers.take("v8")) access.values = 8;
  access.type = modifiers.take_type();
  // Prefetch sizes and eviction priorities are ignored.
  while (!modifiers.empty() &&
         (modifiers.first() == "unified" || modifiers.first().substr(0, 1) == "L")) {
    modifiers.drop_first();
  }
  if (!modifiers.empty()) return unsupported(parsed);
  const ParsedOperand& address = parsed.operands[loads ? 1 : 0];
  const ParsedOperand& value = parsed.operands[loads ? 0 : 1];
  Instruction instruction;
  if (!place_address(parsed, address, access.space, instruction)) return unsupported(parsed);
  instruction.execute = loads ? load_of(access) : store_of(access);
  if (instruction.execute == nullptr) return unsupported(parsed);
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
    if (!resolved) return unsupported(parsed);
    program_.operands.push_back({resolved->at, resolved->width});
  }
  return with_fences(parsed, instruction, orders);
}

bool ProgramBuilder::with_fences(const ParsedInstruction& parsed, const Instruction& instruction,
                                 bool orders) {
  if (!orders) return add(parsed, instruction);
  return add(parsed, {.execute = &run_fence}) && add(parsed, instruction) &&
         add(parsed, {.execute = &run_fence});
}

bool ProgramBuilder::make_atomic(const ParsedInstruction& parsed) {
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
    return unsupported(parsed);
  }
  Instruction instruction{.execute = execute};
  if (!place_address(parsed, parsed.operands[first], access.space, instruction))
    return unsupported(parsed);
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

bool ProgramBuilder::make_space_instruction(const ParsedInstruction& parsed) {
  if (parsed.operands.size() != 2) return unsupported(parsed);
  Modifiers modifiers{parsed.modifiers};
  const bool tests = parsed.opcode == "isspacep";
  const bool from_generic = modifiers.take("to");
  const auto space = take_space(modifiers);
  const PtxType type = tests ? PtxType::U64 : modifiers.take_type();
  if (!space || !modifiers.empty()) return unsupported(parsed);
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

bool ProgramBuilder::make_packing(const ParsedInstruction& parsed) {
  Modifiers modifiers{parsed.modifiers};
  const PtxType type = modifiers.take_type();
  const bool packs = parsed.operands[1].kind == ParsedOperand::Kind::List;
  const auto& list = parsed.operands[packs ? 1 : 0].list;
  const unsigned part = list.empty() ? 0 : size_of(type) / static_cast<unsigned>(list.size());
  const PtxType part_type = part == 4   ? PtxType::B32
                            : part == 2 ? PtxType::B16
                            : part == 1 ? PtxType::B8
                                        : PtxType::Other;
  if (!modifiers.empty() || part_type == PtxType::Other) return unsupported(parsed);
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

}  // namespace cuvmm::sim
