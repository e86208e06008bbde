// SPDX-License-Identifier: Apache-2.0
// Resolves the names and numbers in an instruction.
#include "sim/interpreter/lane_moves.hpp"
#include "sim/interpreter/program_builder.hpp"

namespace cuvmm::sim {

std::optional<std::uint32_t> ProgramBuilder::symbol_operand(const ParsedOperand& operand,
                                                            std::uint8_t width) {
  const auto displaced = [&](std::uint64_t value) {
    return registers_.constant(value + static_cast<std::uint64_t>(operand.displacement), width);
  };
  if (operand.name == "WARP_SZ") return displaced(warp_size);
  if (const SymbolPlace* symbol = names_.find_symbol(operand.name)) {
    if (symbol->is_dynamic && operand.displacement == 0) {
      return registers_.special(SpecialRegister::DynamicSharedBase, width);
    }
    if (symbol->space == PtxStateSpace::Param) {
      if (width != 8 || symbol->offset + static_cast<std::uint64_t>(operand.displacement) != 0) {
        unsupported("the address of a kernel's parameter");
        return std::nullopt;
      }
      return registers_.special(SpecialRegister::ParameterBase, 8);
    }
    if (symbol->space == PtxStateSpace::Local) ++local_addresses_taken_;
    return displaced(symbol->offset);
  }
  if (const auto address = find_variable_(operand.name)) return displaced(*address);
  return std::nullopt;
}

std::optional<std::uint32_t> ProgramBuilder::special_operand(const ParsedInstruction& parsed,
                                                             const SpecialName& special) {
  const bool is_clock = special.which == SpecialRegister::Clock ||
                        special.which == SpecialRegister::Clock64 ||
                        special.which == SpecialRegister::GlobalTimer;
  const std::uint32_t at = registers_.special(special.which, special.width);
  if (is_clock) {
    const Instruction read{.execute = &run_read_clock, .d = at, .width_d = special.width};
    if (!add(parsed, read)) return std::nullopt;
  }
  return at;
}

std::optional<ProgramBuilder::Resolved> ProgramBuilder::resolve(const ParsedInstruction& parsed,
                                                                const ParsedOperand& operand,
                                                                PtxType type, bool may_differ) {
  const auto width = static_cast<std::uint8_t>(size_of(type));
  if (operand.kind == ParsedOperand::Kind::Number) {
    const auto bits = number(operand, type);
    if (!bits) return std::nullopt;
    const auto stored = static_cast<std::uint8_t>(width == 1 ? 2 : width);
    return Resolved{registers_.constant(*bits, stored), stored};
  }
  if (operand.kind != ParsedOperand::Kind::Name) return std::nullopt;
  if (operand.is_negative) {
    unsupported(parsed);
    return std::nullopt;
  }
  if (operand.suffix.empty() && operand.displacement == 0) {
    if (const auto place = names_.find_register(operand.name)) {
      const bool fits = place->width == width || (width == 1 && place->width == 2);
      if (!fits && !(may_differ && place->width >= width && width != 0)) {
        unsupported("registers of another size in " + std::string{program_.texts[text_now_]});
        return std::nullopt;
      }
      return Resolved{place->at, place->width};
    }
  }
  if (const auto special = find_special_register(operand.name, operand.suffix)) {
    const auto at = special_operand(parsed, *special);
    if (!at) return std::nullopt;
    if (special->width == width || (may_differ && special->width >= width)) {
      return Resolved{*at, special->width};
    }
    if (special->width > width) {  // its low half, such as a 32-bit %gridid
      return Resolved{registers_.special(SpecialRegister::GridId, width), width};
    }
    unsupported("the special register " + std::string{operand.name} + " in so many bits");
    return std::nullopt;
  }
  if (operand.name.front() == '%') {
    unsupported("the special register " + std::string{operand.name} + std::string{operand.suffix});
    return std::nullopt;
  }
  const auto at = symbol_operand(operand, width);
  if (!at) {
    unsupported("the name " + std::string{operand.name});
    return std::nullopt;
  }
  return Resolved{*at, width};
}

std::optional<std::uint64_t> ProgramBuilder::number(const ParsedOperand& operand, PtxType type) {
  const unsigned width = size_of(type);
  const bool is_float = type == PtxType::F32 || type == PtxType::F64;
  const std::string_view kind = operand.number.substr(0, 2);
  const bool is_float_text = kind == "0f" || kind == "0F" || kind == "0d" || kind == "0D" ||
                             operand.number.find('.') != std::string_view::npos;
  if (is_float || is_float_text) {
    auto bits = read_ptx_float(operand.number, width == 8 ? 8 : 4);
    if (bits && operand.is_negative) *bits ^= std::uint64_t{1} << (width * 8 - 1);
    return bits;
  }
  auto value = read_ptx_integer(operand.number);
  if (value && operand.is_negative) *value = 0 - *value;
  if (value && width != 0 && width < 8) *value &= (std::uint64_t{1} << (width * 8)) - 1;
  return value;
}

}  // namespace cuvmm::sim
