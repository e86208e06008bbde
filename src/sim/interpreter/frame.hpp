// SPDX-License-Identifier: Apache-2.0
// The locations of a program's operands during compilation.
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
  std::uint8_t width = 0;  // bytes of a lane; 0: a predicate
};

// A variable outside the module's memory: shared, local, or a parameter.
struct SymbolPlace {
  PtxStateSpace space = PtxStateSpace::Local;
  std::uint64_t offset = 0;
  Size size = 0;
  bool is_dynamic = false;  // shared memory whose size the launch decides
};

// Allocates the registers, constants and special registers of a whole program. Each function has
// its own registers; a recursive call saves them in a SavedFrame.
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

// The names visible at a position in the text. A block in braces opens a scope.
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
