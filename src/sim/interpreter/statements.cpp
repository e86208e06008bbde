// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/statements.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {
namespace {

struct NamedType {
  std::string_view name;
  PtxType type;
};
constexpr NamedType named_types[] = {
    {"pred", PtxType::Pred},    {"b8", PtxType::B8},   {"b16", PtxType::B16},
    {"b32", PtxType::B32},      {"b64", PtxType::B64}, {"u8", PtxType::U8},
    {"u16", PtxType::U16},      {"u32", PtxType::U32}, {"u64", PtxType::U64},
    {"s8", PtxType::S8},        {"s16", PtxType::S16}, {"s32", PtxType::S32},
    {"s64", PtxType::S64},      {"f16", PtxType::F16}, {"bf16", PtxType::BF16},
    {"f32", PtxType::F32},      {"f64", PtxType::F64}, {"f16x2", PtxType::F16x2},
    {"bf16x2", PtxType::BF16x2}};

bool is_number(std::string_view token) {
  return !token.empty() && token.front() >= '0' && token.front() <= '9';
}

std::optional<std::int64_t> read_displacement(PtxTokens& tokens) {
  std::int64_t total = 0;
  while (tokens.now() == "+" || tokens.now() == "-") {
    bool is_negative = tokens.take() == "-";
    if (tokens.skip("-")) is_negative = !is_negative;
    const auto value = read_ptx_integer(tokens.take());
    if (!value) return std::nullopt;
    total += is_negative ? -static_cast<std::int64_t>(*value) : static_cast<std::int64_t>(*value);
  }
  return total;
}

std::optional<ParsedOperand> read_operand(PtxTokens& tokens);

std::optional<ParsedOperand> read_address(PtxTokens& tokens) {
  ParsedOperand operand{.kind = ParsedOperand::Kind::Address};
  if (is_number(tokens.now())) {
    operand.number = tokens.take();
    const auto value = read_ptx_integer(operand.number);
    if (!value) return std::nullopt;
    operand.displacement = static_cast<std::int64_t>(*value);
  } else if (is_ptx_name(tokens.now())) {
    operand.name = tokens.take();
    const auto displacement = read_displacement(tokens);
    if (!displacement) return std::nullopt;
    operand.displacement = *displacement;
  }
  return tokens.skip("]") ? std::optional{operand} : std::nullopt;
}

std::optional<ParsedOperand> read_list(PtxTokens& tokens) {
  ParsedOperand operand{.kind = ParsedOperand::Kind::List};
  do {
    auto value = read_operand(tokens);
    if (!value) return std::nullopt;
    operand.list.push_back(std::move(*value));
  } while (tokens.skip(","));
  return tokens.skip("}") ? std::optional{std::move(operand)} : std::nullopt;
}

std::optional<ParsedOperand> read_operand(PtxTokens& tokens) {
  if (tokens.skip("{")) return read_list(tokens);
  if (tokens.skip("[")) return read_address(tokens);
  ParsedOperand operand;
  operand.is_inverted = tokens.skip("!");
  operand.is_negative = tokens.skip("-");
  if (is_number(tokens.now())) {
    operand.kind = ParsedOperand::Kind::Number;
    operand.number = tokens.take();
    return operand;
  }
  if (!is_ptx_name(tokens.now())) return std::nullopt;
  operand.name = tokens.take();
  if (is_ptx_directive(tokens.now())) operand.suffix = tokens.take();
  const auto displacement = read_displacement(tokens);
  if (!displacement) return std::nullopt;
  operand.displacement = *displacement;
  return operand;
}

// Of ".L2::128B", only ".L2" is kept: the rest is a hint for caches.
void read_modifiers(PtxTokens& tokens, std::vector<std::string_view>& modifiers) {
  while (is_ptx_directive(tokens.now())) {
    modifiers.push_back(tokens.take().substr(1));
    while (tokens.now() == ":") {
      tokens.take();
      if (tokens.now() != ":" && !is_ptx_directive(tokens.now())) tokens.take();
    }
  }
}

}  // namespace

PtxType read_ptx_type(std::string_view word) {
  if (!word.empty() && word.front() == '.') word.remove_prefix(1);
  const auto* found = std::find_if(std::begin(named_types), std::end(named_types),
                                   [&](const NamedType& known) { return known.name == word; });
  return found == std::end(named_types) ? PtxType::Other : found->type;
}

unsigned size_of(PtxType type) {
  switch (type) {
    case PtxType::B8:
    case PtxType::U8:
    case PtxType::S8:
      return 1;
    case PtxType::B16:
    case PtxType::U16:
    case PtxType::S16:
    case PtxType::F16:
    case PtxType::BF16:
      return 2;
    case PtxType::B32:
    case PtxType::U32:
    case PtxType::S32:
    case PtxType::F32:
    case PtxType::F16x2:
    case PtxType::BF16x2:
      return 4;
    case PtxType::B64:
    case PtxType::U64:
    case PtxType::S64:
    case PtxType::F64:
      return 8;
    default:
      return 0;
  }
}

PtxType Modifiers::take_type() {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const PtxType type = read_ptx_type(left_[i]);
    if (type == PtxType::Other) continue;
    left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(i));
    return type;
  }
  return PtxType::Other;
}

std::optional<ParsedInstruction> read_instruction(PtxTokens& tokens) {
  ParsedInstruction instruction;
  if (tokens.skip("@")) {
    instruction.guard_negated = tokens.skip("!");
    instruction.guard = tokens.take();
  }
  if (!is_ptx_name(tokens.now())) return std::nullopt;
  instruction.opcode = tokens.take();
  read_modifiers(tokens, instruction.modifiers);
  if (instruction.opcode == "call" || tokens.skip(";")) return instruction;
  do {
    auto operand = read_operand(tokens);
    if (!operand) return std::nullopt;
    instruction.operands.push_back(std::move(*operand));
    if (tokens.skip("|")) {
      auto second = read_operand(tokens);
      if (!second) return std::nullopt;
      instruction.second = std::move(*second);
      instruction.has_second = true;
    }
  } while (tokens.skip(","));
  return tokens.skip(";") ? std::optional{std::move(instruction)} : std::nullopt;
}

std::optional<ParsedCall> read_call(PtxTokens& tokens) {
  ParsedCall call;
  const auto read_names = [&](std::vector<std::string_view>& names) {
    while (tokens.now() != ")" && !tokens.at_end()) {
      names.push_back(tokens.take());
      tokens.skip(",");
    }
    return tokens.skip(")");
  };
  if (tokens.skip("(")) {
    if (!read_names(call.results) || !tokens.skip(",")) return std::nullopt;
  }
  call.function = tokens.take();
  call.is_indirect = !call.function.empty() && call.function.front() == '%';
  if (tokens.skip(",")) {
    if (!tokens.skip("(") || !read_names(call.arguments)) return std::nullopt;
    if (tokens.skip(",")) {
      call.is_indirect = true;
      tokens.take();
    }
  }
  return tokens.skip(";") ? std::optional{std::move(call)} : std::nullopt;
}

std::optional<ParsedVariable> read_variable(PtxTokens& tokens) {
  ParsedVariable variable;
  Size lanes = 1;
  variable.alignment = 0;
  bool is_pointer = false;
  while (is_ptx_directive(tokens.now())) {
    const std::string_view word = tokens.take();
    if (word == ".align") {
      const auto alignment = read_ptx_integer(tokens.take());
      if (!alignment || !is_power_of_two(*alignment)) return std::nullopt;
      if (!is_pointer) variable.alignment = *alignment;
    } else if (word == ".v2" || word == ".v4") {
      lanes = static_cast<Size>(word[2] - '0');
    } else if (word == ".ptr") {
      is_pointer = true;
    } else if (read_ptx_type(word) != PtxType::Other) {
      variable.type = read_ptx_type(word);
    } else if (!is_pointer) {
      return std::nullopt;
    }
  }
  if (!is_ptx_name(tokens.now())) return std::nullopt;
  variable.name = tokens.take();
  const Size element = size_of(variable.type) * lanes;
  if (variable.alignment == 0) variable.alignment = element == 0 ? 1 : element;
  variable.size = element;
  while (tokens.skip("[")) {
    if (tokens.skip("]")) {
      variable.size = 0;
      continue;
    }
    const auto count = read_ptx_integer(tokens.take());
    if (!count || *count > GiB || !tokens.skip("]")) return std::nullopt;
    variable.size *= *count;
    if (variable.size > GiB) return std::nullopt;
  }
  return variable;
}

}  // namespace cuvmm::sim
