// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/compiler.hpp"

#include <algorithm>

#include "sim/interpreter/program_builder.hpp"

namespace cuvmm::sim {

std::string ProgramBuilder::make(const std::string& entry) {
  names_.open();
  find_functions();
  const auto found = functions_.find(entry);
  if (found == functions_.end() || found->second.text.empty()) return "the entry's text";
  program_.name = entry;
  if (!function(found->first, found->second, true)) {
    return unsupported_.empty() ? "this text" : unsupported_;
  }
  program_.entry = found->second.entry;
  fix_recursive_calls();
  program_.shared_bytes = round_up(program_.shared_bytes, Size{16});
  program_.local_bytes = round_up(program_.local_bytes, Size{16});
  constexpr Size most_local_bytes = 512 * KiB;  // as on a card
  if (program_.local_bytes > most_local_bytes) return "so much local memory";
  return {};
}

bool ProgramBuilder::unsupported(std::string what) {
  if (unsupported_.empty()) unsupported_ = std::move(what);
  return false;
}

bool ProgramBuilder::unsupported(const ParsedInstruction& instruction) {
  std::string name{instruction.opcode};
  for (const std::string_view modifier : instruction.modifiers) (name += '.') += modifier;
  return unsupported("the instruction " + name);
}

void ProgramBuilder::find_functions() {
  PtxTokens tokens{text_};
  while (!tokens.at_end()) {
    const std::string_view word = tokens.take();
    if (word == "{") {
      skip_body(tokens);
    } else if (word == ".entry" || word == ".func") {
      const std::string_view rest =
          text_.substr(static_cast<std::size_t>(tokens.now().data() - text_.data()));
      while (tokens.skip(".attribute") || tokens.skip(".noreturn")) {
      }
      if (tokens.now() == "(" && !tokens.skip_balanced('(', ')')) return;
      const std::string_view name = tokens.take();
      while (!tokens.at_end() && tokens.now() != ";" && tokens.now() != "{") tokens.take();
      FunctionText& function = functions_[name];
      function.is_entry = word == ".entry";
      if (tokens.now() == "{") function.text = rest;
    } else if (word == ".shared") {
      if (const auto variable = read_variable(tokens)) add_shared(*variable);
    }
  }
}

void ProgramBuilder::skip_body(PtxTokens& tokens) {
  std::size_t depth = 1;
  while (!tokens.at_end() && depth > 0) {
    const std::string_view token = tokens.take();
    if (token == "{") ++depth;
    if (token == "}") --depth;
  }
}

void ProgramBuilder::add_shared(const ParsedVariable& variable) {
  const bool is_dynamic = variable.size == 0;
  if (!is_dynamic) {
    program_.shared_bytes = round_up(program_.shared_bytes, variable.alignment);
  }
  names_.add_symbol(variable.name, {.space = PtxStateSpace::Shared,
                                    .offset = program_.shared_bytes,
                                    .size = variable.size,
                                    .is_dynamic = is_dynamic});
  program_.shared_bytes += variable.size;
}

SymbolPlace ProgramBuilder::add_local(const ParsedVariable& variable) {
  program_.local_bytes = round_up(program_.local_bytes, std::max(variable.alignment, Size{8}));
  const SymbolPlace place{
      .space = PtxStateSpace::Local, .offset = program_.local_bytes, .size = variable.size};
  program_.local_bytes += variable.size;
  names_.add_symbol(variable.name, place);
  return place;
}

bool ProgramBuilder::parameters(PtxTokens& tokens, bool is_entry,
                                std::vector<SymbolPlace>& places) {
  if (!tokens.skip("(")) return true;
  Size offset = 0;
  while (!tokens.skip(")")) {
    tokens.skip(",");
    if (tokens.skip(".reg")) return unsupported("a parameter in a register");
    if (!tokens.skip(".param")) return false;
    const auto variable = read_variable(tokens);
    if (!variable) return false;
    if (is_entry) {
      offset = round_up(offset, variable->alignment);
      names_.add_symbol(variable->name,
                        {.space = PtxStateSpace::Param, .offset = offset, .size = variable->size});
      offset += variable->size;
    } else {
      places.push_back(add_local(*variable));
    }
  }
  return true;
}

bool ProgramBuilder::function(std::string_view name, FunctionText& made, bool is_entry) {
  made.is_being_compiled = true;
  const SavedFrame begun{.first_register = program_.registers.size(),
                         .first_local = program_.local_bytes};
  const std::size_t local_addresses_before = local_addresses_taken_;
  Code outer_code = std::move(code_);
  auto outer_labels = std::move(labels_);
  auto outer_fixes = std::move(fixes_);
  code_.clear();
  labels_.clear();
  fixes_.clear();
  PtxTokens tokens{made.text};
  names_.open();
  bool is_right = is_entry || parameters(tokens, false, made.results);
  if (is_right) tokens.take();  // its name
  is_right = is_right && parameters(tokens, is_entry, made.parameters);
  while (is_right && !tokens.at_end() && tokens.now() != "{") tokens.take();
  tokens.skip("{");
  is_right = is_right && body(tokens) && fix_labels();
  names_.close();
  if (!is_right) return unsupported("something in " + std::string{name});
  if (made.saved_frame) {
    // An address of the outer call's variable would then refer to the inner call's.
    if (local_addresses_taken_ != local_addresses_before) {
      return unsupported(
          "a function that calls itself and takes the address of a local variable (" +
          std::string{name} + ")");
    }
    program_.saved_frames[*made.saved_frame] = {.first_register = begun.first_register,
                                                .end_register = program_.registers.size(),
                                                .first_local = begun.first_local,
                                                .end_local = program_.local_bytes};
  }
  append(made);
  code_ = std::move(outer_code);
  labels_ = std::move(outer_labels);
  fixes_ = std::move(outer_fixes);
  made.is_being_compiled = false;
  made.is_compiled = true;
  return true;
}

void ProgramBuilder::append(FunctionText& made) {
  code_.push_back({.text = add_text({}), .flow = Flow::Return});
  made.entry = static_cast<std::uint32_t>(program_.code.size());
  for (Instruction& instruction : code_) {
    if (instruction.flow == Flow::Branch) instruction.target += made.entry;
    if (instruction.flow == Flow::BranchTable) {
      for (std::uint32_t& target : program_.branch_tables[instruction.target]) {
        target += made.entry;
      }
    }
  }
  program_.code.insert(program_.code.end(), code_.begin(), code_.end());
}

bool ProgramBuilder::fix_labels() {
  for (const auto& [index, label] : fixes_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) return false;
    code_[index].target = found->second;
  }
  for (const auto& [index, table] : table_fixes_) {
    const auto names = tables_.find(table);
    if (names == tables_.end()) return false;
    std::vector<std::uint32_t> targets;
    for (const std::string_view label : names->second) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) return false;
      targets.push_back(found->second);
    }
    code_[index].target = static_cast<std::uint32_t>(program_.branch_tables.size());
    program_.branch_tables.push_back(std::move(targets));
  }
  table_fixes_.clear();
  tables_.clear();
  return true;
}

bool ProgramBuilder::body(PtxTokens& tokens) {
  const std::size_t outermost = names_.depth();
  names_.open();
  while (!tokens.at_end()) {
    if (tokens.skip("}")) {
      names_.close();
      if (names_.depth() == outermost) return true;
    } else if (tokens.skip("{")) {
      names_.open();
    } else if (!statement(tokens)) {
      return false;
    }
  }
  return false;
}

bool ProgramBuilder::statement(PtxTokens& tokens) {
  if (tokens.skip(";")) return true;
  const std::string_view word = tokens.now();
  if (is_ptx_directive(word)) return directive(tokens);
  const char* begin = word.data();
  if (is_ptx_name(word)) {
    PtxTokens ahead = tokens;
    ahead.take();
    if (ahead.now() == ":") {
      tokens.take();
      tokens.take();
      return label(word, tokens);
    }
  }
  const auto instruction = read_instruction(tokens);
  if (!instruction) return unsupported("the text at '" + std::string{word} + "'");
  std::optional<ParsedCall> call;
  if (instruction->opcode == "call") {
    call = read_call(tokens);
    if (!call) return false;
  }
  const char* end = tokens.at_end() ? begin : tokens.now().data();
  std::string_view text{begin, static_cast<std::size_t>(end - begin)};
  text = text.substr(0, text.find(';'));
  text_now_ = add_text(text);
  return call ? make_call(*instruction, *call) : make_instruction(*instruction);
}

bool ProgramBuilder::label(std::string_view name, PtxTokens& tokens) {
  if (tokens.skip(".branchtargets")) {
    auto& targets = tables_[name];
    do {
      targets.push_back(tokens.take());
    } while (tokens.skip(","));
    return tokens.skip(";");
  }
  if (tokens.now() == ".callprototype") {
    while (!tokens.at_end() && tokens.take() != ";") {
    }
    return true;
  }
  labels_[name] = static_cast<std::uint32_t>(code_.size());
  return true;
}

bool ProgramBuilder::directive(PtxTokens& tokens) {
  const std::string_view word = tokens.take();
  if (word == ".reg") return declare_registers(tokens);
  if (word == ".local" || word == ".param" || word == ".shared") {
    const auto variable = read_variable(tokens);
    if (!variable) return false;
    if (word == ".shared") {
      add_shared(*variable);
    } else {
      add_local(*variable);
    }
    return tokens.skip(";");
  }
  if (word == ".pragma") {
    while (!tokens.at_end() && tokens.take() != ";") {
    }
    return true;
  }
  if (word == ".loc") return location(tokens);
  return unsupported("the directive " + std::string{word});
}

bool ProgramBuilder::location(PtxTokens& tokens) {
  const auto numbers = [&] {
    while (read_ptx_integer(tokens.now())) tokens.take();
  };
  numbers();
  while (tokens.skip(",")) {
    tokens.take();
    if (is_ptx_name(tokens.now())) tokens.take();
    if (tokens.skip("+")) tokens.take();
    numbers();
  }
  return true;
}

bool ProgramBuilder::declare_registers(PtxTokens& tokens) {
  const PtxType type = read_ptx_type(tokens.take());
  if (type == PtxType::Other) return unsupported("a register of another type");
  const auto width =
      static_cast<std::uint8_t>(type == PtxType::Pred ? 0 : std::max(2U, size_of(type)));
  do {
    const std::string_view name = tokens.take();
    if (!is_ptx_name(name)) return false;
    if (tokens.skip("<")) {
      const auto count = read_ptx_integer(tokens.take());
      if (!count || *count > 100'000 || !tokens.skip(">")) return false;
      RegisterPlace first{.at = program_.register_bytes, .type = type, .width = width};
      std::uint32_t stride = 0;
      for (std::uint64_t i = 0; i < *count; ++i) {
        const std::uint32_t at = registers_.add(width);
        if (i == 1) stride = at - first.at;
      }
      names_.add_registers(name, static_cast<std::uint32_t>(*count), stride, first);
    } else {
      names_.add_register(name, {.at = registers_.add(width), .type = type, .width = width});
    }
  } while (tokens.skip(","));
  return tokens.skip(";");
}

std::uint32_t ProgramBuilder::add_text(std::string_view text) {
  program_.texts.push_back(text);
  return static_cast<std::uint32_t>(program_.texts.size() - 1);
}

bool ProgramBuilder::add(const ParsedInstruction& parsed, Instruction instruction) {
  instruction.text = text_now_;
  if (!parsed.guard.empty()) {
    const auto guard = names_.find_register(parsed.guard);
    if (!guard || guard->width != 0) return false;
    instruction.guard = guard->at;
    instruction.guard_negated = parsed.guard_negated;
  }
  code_.push_back(instruction);
  return true;
}

std::string compile_entry(std::string_view text, const std::string& entry,
                          const FindVariable& find_variable, Program& program) {
  return ProgramBuilder{text, find_variable, program}.make(entry);
}

}  // namespace cuvmm::sim
