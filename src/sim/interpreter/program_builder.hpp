// SPDX-License-Identifier: Apache-2.0
// Compiles one entry: parses its text and that of the functions it calls, allocates their registers
// and variables, and selects the function that executes each instruction.
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

// A function of the module: its text and, once compiled, the position of its code.
struct FunctionText {
  std::string_view text;  // from its result or name on; empty if only declared
  bool is_entry = false;
  bool is_being_compiled = false;
  bool is_compiled = false;
  std::uint32_t entry = 0;
  std::vector<SymbolPlace> results;
  std::vector<SymbolPlace> parameters;
  std::optional<std::size_t> saved_frame;  // index into Program::saved_frames, if it is recursive
};

using Code = std::vector<Instruction>;

class ProgramBuilder {
 public:
  ProgramBuilder(std::string_view text, const FindVariable& find_variable, Program& program)
      : text_(text), find_variable_(find_variable), program_(program), registers_(program) {}
  std::string make(const std::string& entry);

 private:
  bool unsupported(std::string what);
  bool unsupported(const ParsedInstruction& instruction);
  // Finds the module's functions and shared variables. Other declarations are read by read_ptx().
  void find_functions();
  static void skip_body(PtxTokens& tokens);
  void add_shared(const ParsedVariable& variable);
  SymbolPlace add_local(const ParsedVariable& variable);
  bool parameters(PtxTokens& tokens, bool is_entry, std::vector<SymbolPlace>& places);
  bool function(std::string_view name, FunctionText& made, bool is_entry);
  // Appends the function after its callees: lanes furthest back run first, and so reconverge.
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
  // Resolves a name that is not a register.
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
  // Consumes cache and ordering modifiers. Every access is at least as strong as a relaxed one of
  // system scope. Returns whether the access needs fences around it.
  static bool take_cache_words(Modifiers& modifiers);
  bool place_address(const ParsedInstruction& parsed, const ParsedOperand& operand,
                     PtxStateSpace& space, Instruction& instruction);
  bool make_access(const ParsedInstruction& parsed);
  bool with_fences(const ParsedInstruction& parsed, const Instruction& instruction, bool orders);
  bool make_atomic(const ParsedInstruction& parsed);
  bool make_space_instruction(const ParsedInstruction& parsed);
  // `mov.b64 {%r1, %r2}, %rd1` and the reverse.
  bool make_packing(const ParsedInstruction& parsed);
  bool make_by_choice(const ParsedInstruction& parsed);
  bool set_operands(const ParsedInstruction& parsed, const Choice& choice,
                    Instruction& instruction);
  // An instruction whose last operand names the lanes that must take part.
  bool make_converging(const ParsedInstruction& parsed, const Choice& choice,
                       Instruction& instruction);
  bool make_call(const ParsedInstruction& parsed, const ParsedCall& call);
  using Places = std::vector<SymbolPlace>;
  // Looks up the local memory of a call's arguments and results.
  bool find_places(const std::vector<std::string_view>& names, Places& places);
  // Compiles the function if it is not compiled yet.
  bool compile_callee(std::string_view name, FunctionText& callee);
  bool make_direct_call(const ParsedInstruction& parsed, FunctionText& callee,
                        const Places& arguments, const Places& results);
  bool make_recursive_call(const ParsedInstruction& parsed, FunctionText& callee,
                           const Places& arguments, const Places& results);
  bool make_indirect_call(const ParsedInstruction& parsed, std::string_view pointer,
                          const Places& arguments, const Places& results);
  // Sets the targets of recursive calls, once the positions of all functions are known.
  void fix_recursive_calls();
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
  std::string unsupported_;
  std::vector<const FunctionText*> recursive_calls_;
  std::size_t local_addresses_taken_ = 0;
  std::uint32_t text_now_ = 0;
  // State of the function being compiled.
  Code code_;
  std::map<std::string_view, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> fixes_;
  std::map<std::string_view, std::vector<std::string_view>> tables_;
  std::vector<std::pair<std::size_t, std::string_view>> table_fixes_;
};

}  // namespace cuvmm::sim
