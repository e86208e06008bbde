// SPDX-License-Identifier: Apache-2.0
// Makes one entry's program: reads its text and that of the functions it calls, gives their
// registers and variables places, and chooses what runs each instruction.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/interpreter/compiler.hpp"
#include "sim/interpreter/frame.hpp"
#include "sim/interpreter/memory_access.hpp"
#include "sim/interpreter/statements.hpp"
#include "sim/ptx_tokens.hpp"

namespace cuvmm::sim {

// A function of the text: where it begins, and once it is made, where its code does.
struct FunctionText {
  std::string_view text;  // from its result or name on; empty: another module's
  bool is_being_made = false;
  bool is_made = false;
  std::uint32_t entry = 0;
  std::vector<SymbolPlace> results;
  std::vector<SymbolPlace> parameters;
};

using Code = std::vector<Instruction>;

class ProgramMaker {
 public:
  ProgramMaker(std::string_view text, const FindVariable& find_variable, Program& program)
      : text_(text), find_variable_(find_variable), program_(program), registers_(program) {}
  std::string make(const std::string& entry);

 private:
  bool lack(std::string what);
  bool lack(const ParsedInstruction& instruction);
  // The module's functions and shared variables; all else of it is read elsewhere.
  void find_functions();
  static void skip_body(PtxTokens& tokens);
  void add_shared(const ParsedVariable& variable);
  SymbolPlace add_local(const ParsedVariable& variable);
  bool parameters(PtxTokens& tokens, bool is_entry, std::vector<SymbolPlace>& places);
  bool function(std::string_view name, FunctionText& made, bool is_entry);
  // Behind the functions that it calls: the interpreter lets lanes that are furthest back go first.
  void append(FunctionText& made);
  bool fix_labels();
  bool body(PtxTokens& tokens);
  bool statement(PtxTokens& tokens);
  bool label(std::string_view name, PtxTokens& tokens);
  bool directive(PtxTokens& tokens);
  // `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 2`
  static bool location(PtxTokens& tokens);
  bool declare_registers(PtxTokens& tokens);
  std::uint32_t add_text(std::string_view text);
  bool add(const ParsedInstruction& parsed, Instruction instruction);
  // What a name that is no register stands for.
  std::optional<std::uint32_t> symbol_operand(const ParsedOperand& operand, std::uint8_t width);
  std::optional<std::uint32_t> special_operand(const ParsedInstruction& parsed,
                                               const SpecialName& special);
  struct Resolved {
    std::uint32_t at = no_operand;
    std::uint8_t width = 0;
  };
  std::optional<Resolved> resolve(const ParsedInstruction& parsed, const ParsedOperand& operand,
                                  PtxType type, bool may_differ);
  static std::optional<std::uint64_t> number(const ParsedOperand& operand, PtxType type);
  bool make_instruction(const ParsedInstruction& parsed);
  static bool has(const ParsedInstruction& parsed, std::string_view modifier);
  bool make_branch(const ParsedInstruction& parsed);
  bool make_table_branch(const ParsedInstruction& parsed);
  bool make_barrier(const ParsedInstruction& parsed);
  static std::optional<PtxStateSpace> take_space(Modifiers& modifiers);
  // What steers caches and order: every access here is as strong as a card's strongest relaxed one,
  // and ones that order others stand between fences.
  static bool take_cache_words(Modifiers& modifiers);
  bool place_address(const ParsedInstruction& parsed, const ParsedOperand& operand,
                     PtxStateSpace& space, Instruction& instruction);
  bool make_access(const ParsedInstruction& parsed);
  bool with_fences(const ParsedInstruction& parsed, const Instruction& instruction, bool orders);
  bool make_atomic(const ParsedInstruction& parsed);
  bool make_space_instruction(const ParsedInstruction& parsed);
  // `mov.b64 {%r1, %r2}, %rd1` and the other way round.
  bool make_packing(const ParsedInstruction& parsed);
  bool make_by_choice(const ParsedInstruction& parsed);
  bool set_operands(const ParsedInstruction& parsed, const Choice& choice,
                    Instruction& instruction);
  // The last operand names the lanes that have to come.
  bool make_meeting(const ParsedInstruction& parsed, const Choice& choice,
                    Instruction& instruction);
  bool make_call(const ParsedInstruction& parsed, const ParsedCall& call);
  bool copy(const ParsedInstruction& parsed, const SymbolPlace& to, const SymbolPlace& from);
  bool make_host_call(const ParsedInstruction& parsed, std::string_view name,
                      const std::vector<SymbolPlace>& arguments,
                      const std::vector<SymbolPlace>& results);
  const std::string_view text_;
  const FindVariable& find_variable_;
  Program& program_;
  RegisterFile registers_;
  NameScopes names_;
  std::map<std::string_view, FunctionText> functions_;
  std::string lacking_;
  std::uint32_t text_now_ = 0;
  // Of the function that is being made.
  Code code_;
  std::map<std::string_view, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> fixes_;
  std::map<std::string_view, std::vector<std::string_view>> tables_;
  std::vector<std::pair<std::size_t, std::string_view>> table_fixes_;
};

}  // namespace cuvmm::sim
