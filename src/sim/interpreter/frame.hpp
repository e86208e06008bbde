// SPDX-License-Identifier: Apache-2.0
// Where the operands of a program lie while it is made.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/interpreter/memory_access.hpp"
#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

struct RegisterPlace {
  std::uint32_t at = 0;
  PtxType type = PtxType::Other;
  std::uint8_t width = 0;  // of a lane; 0: a predicate
};

// A variable that is not the module's: of the block, of the thread, or a parameter.
struct SymbolPlace {
  PtxStateSpace space = PtxStateSpace::Local;
  std::uint64_t offset = 0;
  Size size = 0;
  bool is_dynamic = false;  // shared memory whose size the launch says
};

// Registers, constants and special registers of a whole program. Functions do not call themselves,
// so each has registers of its own.
class RegisterFile {
 public:
  explicit RegisterFile(Program& program) : program_(program) {}
  std::uint32_t add(std::uint8_t width);
  std::uint32_t constant(std::uint64_t bits, std::uint8_t width);
  std::uint32_t special(SpecialRegister which, std::uint8_t width);

 private:
  Program& program_;
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint32_t> constants_;
  std::map<std::pair<SpecialRegister, std::uint8_t>, std::uint32_t> specials_;
};

// The names that a function's text may use: blocks in braces have names of their own.
class NameScopes {
 public:
  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }
  std::size_t depth() const { return scopes_.size(); }
  // `.reg .b32 %r<9>` declares %r0 to %r8.
  void add_registers(std::string_view prefix, std::uint32_t count, std::uint32_t stride,
                     const RegisterPlace& first);
  void add_register(std::string_view name, const RegisterPlace& place);
  void add_symbol(std::string_view name, const SymbolPlace& place);
  std::optional<RegisterPlace> find_register(std::string_view name) const;
  const SymbolPlace* find_symbol(std::string_view name) const;

 private:
  struct Family {
    std::uint32_t count = 0;
    std::uint32_t stride = 0;
    RegisterPlace first;
  };
  struct Scope {
    std::map<std::string_view, Family> families;
    std::map<std::string_view, RegisterPlace> registers;
    std::map<std::string_view, SymbolPlace> symbols;
  };
  std::vector<Scope> scopes_;
};

// "%tid" with ".x".
struct SpecialName {
  SpecialRegister which = SpecialRegister::Zero;
  std::uint8_t width = 4;
};
std::optional<SpecialName> find_special_register(std::string_view name, std::string_view suffix);

}  // namespace cuvmm::sim
