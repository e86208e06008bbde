// SPDX-License-Identifier: Apache-2.0
// A parsed instruction, and the selection of the function that executes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

struct ParsedOperand {
  enum class Kind : std::uint8_t { Name, Number, Address, List } kind = Kind::Name;
  std::string_view name = {};    // of an address: its base, empty if that is a number
  std::string_view suffix = {};  // ".x"
  std::string_view number = {};
  bool is_negative = false;       // a number
  bool is_inverted = false;       // a predicate
  std::int64_t displacement = 0;  // of an address
  std::vector<ParsedOperand> list = {};
};

struct ParsedInstruction {
  std::string_view guard;
  bool guard_negated = false;
  std::string_view opcode;
  std::vector<std::string_view> modifiers;  // without their dots
  std::vector<ParsedOperand> operands;
  ParsedOperand second;  // after '|'
  bool has_second = false;
  std::string text;
};

// The modifiers of an instruction. take() consumes a modifier; an instruction with modifiers left
// over is not supported.
class Modifiers {
 public:
  explicit Modifiers(std::vector<std::string_view> all) : left_(std::move(all)) {}
  bool take(std::string_view wanted) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      if (left_[i] != wanted) continue;
      left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  std::string_view first() const { return left_.empty() ? std::string_view{} : left_.front(); }
  void drop_first() { left_.erase(left_.begin()); }
  PtxType take_type();  // the first that is a type; Other if none is
  bool empty() const { return left_.empty(); }

 private:
  std::vector<std::string_view> left_;
};

// The selected function, and the types of its operands in order.
struct Choice {
  Execute execute = nullptr;
  std::vector<PtxType> types = {};  // of d, a, b, c, e, as many as there are operands
  std::uint32_t float_mode = 0;     // 0: the default
  std::int64_t immediate = 0;
  std::uint8_t variant = 0;
  bool converts = false;  // registers may be wider than their types
};

// Each returns an empty choice for an instruction that it does not know.
Choice choose_integer(std::string_view opcode, Modifiers& modifiers);
Choice choose_float(std::string_view opcode, Modifiers& modifiers);
Choice choose_short_float(std::string_view opcode, Modifiers& modifiers);
Choice choose_carrying(std::string_view opcode, Modifiers& modifiers);
Choice choose_dot_product(std::string_view opcode, Modifiers& modifiers);
// set, and setp of 16-bit floating point numbers.
Choice choose_relation(std::string_view opcode, Modifiers& modifiers);
Choice choose_bits(std::string_view opcode, Modifiers& modifiers);
Choice choose_comparison(std::string_view opcode, Modifiers& modifiers);
Choice choose_conversion(std::string_view opcode, Modifiers& modifiers);

// Consumes rounding and flushing modifiers. Returns the host's control word for them, 0 for the
// default.
std::uint32_t take_float_mode(Modifiers& modifiers);
// Runs the instruction's `inner` operation under its float_mode.
void run_in_float_mode(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
