// SPDX-License-Identifier: Apache-2.0
// Calls: of the module's functions, by name or through pointers, and of the host's functions.
#include <algorithm>

#include "sim/interpreter/host_functions.hpp"
#include "sim/interpreter/program_builder.hpp"
#include "sim/interpreter/saved_frames.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::uint8_t is_recursive = 1;  // the variant of a call whose target is not known yet

// Reads a parenthesized list of parameters. Fails if one is a register.
std::optional<std::vector<Size>> parameter_sizes(PtxTokens& tokens) {
  std::vector<Size> sizes;
  if (!tokens.skip("(")) return sizes;
  while (!tokens.skip(")")) {
    tokens.skip(",");
    if (!tokens.skip(".param")) return std::nullopt;
    const auto variable = read_variable(tokens);
    if (!variable) return std::nullopt;
    sizes.push_back(variable->size);
  }
  return sizes;
}

bool has_sizes(const std::vector<SymbolPlace>& places, const std::vector<Size>& sizes) {
  return std::equal(places.begin(), places.end(), sizes.begin(), sizes.end(),
                    [](const SymbolPlace& place, Size size) { return place.size == size; });
}

}  // namespace

bool ProgramBuilder::find_places(const std::vector<std::string_view>& names, Places& places) {
  for (const std::string_view name : names) {
    const SymbolPlace* place = names_.find_symbol(name);
    if (place == nullptr || place->space != PtxStateSpace::Local) {
      return unsupported("a call with arguments in registers");
    }
    places.push_back(*place);
  }
  return true;
}

bool ProgramBuilder::make_call(const ParsedInstruction& parsed, const ParsedCall& call) {
  Places arguments;
  Places results;
  if (!find_places(call.arguments, arguments) || !find_places(call.results, results)) return false;
  if (call.is_indirect) return make_indirect_call(parsed, call.function, arguments, results);
  const auto found = functions_.find(call.function);
  if (found == functions_.end()) return unsupported("the function " + std::string{call.function});
  FunctionText& callee = found->second;
  if (callee.text.empty()) return make_host_call(parsed, call.function, arguments, results);
  if (callee.is_being_compiled) return make_recursive_call(parsed, callee, arguments, results);
  return compile_callee(found->first, callee) &&
         make_direct_call(parsed, callee, arguments, results);
}

bool ProgramBuilder::compile_callee(std::string_view name, FunctionText& callee) {
  if (callee.is_compiled) return true;
  const std::uint32_t text = text_now_;
  auto tables = std::move(tables_);
  auto table_fixes = std::move(table_fixes_);
  tables_.clear();
  table_fixes_.clear();
  NameScopes outer = names_;
  while (names_.depth() > 1) names_.close();
  if (!function(name, callee, false)) return false;
  names_ = std::move(outer);
  tables_ = std::move(tables);
  table_fixes_ = std::move(table_fixes);
  text_now_ = text;
  return true;
}

bool ProgramBuilder::make_direct_call(const ParsedInstruction& parsed, FunctionText& callee,
                                      const Places& arguments, const Places& results) {
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

// The callee is being compiled, so its registers and parameters are already allocated.
bool ProgramBuilder::make_recursive_call(const ParsedInstruction& parsed, FunctionText& callee,
                                         const Places& arguments, const Places& results) {
  if (arguments.size() != callee.parameters.size() || results.size() != callee.results.size() ||
      results.size() > 1) {
    return false;
  }
  if (!results.empty() && results[0].size > most_saved_result_bytes) {
    return unsupported("a function that calls itself with so large a result");
  }
  if (!callee.saved_frame) {
    callee.saved_frame = program_.saved_frames.size();
    program_.saved_frames.emplace_back();
  }
  const auto frame = static_cast<std::uint32_t>(*callee.saved_frame);
  if (!add(parsed, {.execute = &run_save_frame, .first = frame})) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!copy(parsed, callee.parameters[i], arguments[i])) return false;
  }
  const auto number = static_cast<std::uint32_t>(recursive_calls_.size());
  recursive_calls_.push_back(&callee);
  if (!add(parsed, {.target = number, .variant = is_recursive, .flow = Flow::Call})) return false;
  Instruction restore{.execute = &run_restore_frame, .first = frame};
  if (!results.empty()) {
    restore.d = static_cast<std::uint32_t>(results[0].offset);
    restore.a = static_cast<std::uint32_t>(callee.results[0].offset);
    restore.immediate =
        static_cast<std::int64_t>(std::min(results[0].size, callee.results[0].size));
  }
  return add(parsed, restore);
}

void ProgramBuilder::fix_recursive_calls() {
  for (Instruction& instruction : program_.code) {
    if (instruction.flow != Flow::Call || instruction.variant != is_recursive) continue;
    instruction.target = recursive_calls_[instruction.target]->entry;
    instruction.variant = 0;
  }
}

// Emits a guarded call of every function that the pointer may refer to.
bool ProgramBuilder::make_indirect_call(const ParsedInstruction& parsed, std::string_view pointer,
                                        const Places& arguments, const Places& results) {
  const auto address = names_.find_register(pointer);
  if (!address || address->width != 8) return unsupported("a call through " + std::string{pointer});
  const std::size_t table = program_.callable.size();
  program_.callable.emplace_back();
  if (!add(parsed, {.execute = &run_expect_callable,
                    .a = address->at,
                    .first = static_cast<std::uint32_t>(table)})) {
    return false;
  }
  const std::uint32_t guard = code_.back().guard;
  const bool guard_negated = code_.back().guard_negated;
  ParsedInstruction unguarded = parsed;
  unguarded.guard = {};
  for (auto& [name, callee] : functions_) {
    const auto value = find_variable_(name);
    if (callee.is_entry || callee.text.empty() || callee.is_being_compiled || !value) continue;
    PtxTokens tokens{callee.text};
    const auto result_sizes = parameter_sizes(tokens);
    tokens.take();  // its name
    const auto argument_sizes = parameter_sizes(tokens);
    if (!result_sizes || !argument_sizes || !has_sizes(results, *result_sizes) ||
        !has_sizes(arguments, *argument_sizes)) {
      continue;
    }
    if (!compile_callee(name, callee)) return false;
    program_.callable[table].push_back(*value);
    const std::uint32_t is_meant = registers_.add(0);
    if (!add(unguarded, {.execute = &run_is_meant,
                         .d = is_meant,
                         .a = address->at,
                         .c = guard,
                         .immediate = static_cast<std::int64_t>(*value),
                         .c_negated = guard_negated})) {
      return false;
    }
    const std::size_t first = code_.size();
    if (!make_direct_call(unguarded, callee, arguments, results)) return false;
    for (std::size_t i = first; i < code_.size(); ++i) code_[i].guard = is_meant;
  }
  return true;
}

bool ProgramBuilder::copy(const ParsedInstruction& parsed, const SymbolPlace& to,
                          const SymbolPlace& from) {
  return add(parsed, {.execute = &run_local_copy,
                      .d = static_cast<std::uint32_t>(to.offset),
                      .a = static_cast<std::uint32_t>(from.offset),
                      .immediate = static_cast<std::int64_t>(std::min(to.size, from.size))});
}

bool ProgramBuilder::make_host_call(const ParsedInstruction& parsed, std::string_view name,
                                    const Places& arguments, const Places& results) {
  const HostFunction* function = find_host_function(name);
  if (function == nullptr) return unsupported("the function " + std::string{name});
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
