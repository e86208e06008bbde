// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cuvmm::view {

// The functions of a program or library, from its symbol table.
class ElfSymbols {
 public:
  // Without symbols if the file cannot be read, is no ELF file of this machine, or has changed
  // since `unchanged_since` (ns since 1970).
  static ElfSymbols of_file(const std::string& path, std::uint64_t unchanged_since);

  // The name of the function that contains the address, as in the source code.
  std::optional<std::string> function_at(std::uint64_t address) const;

 private:
  struct Function {
    std::uint64_t begin;
    std::uint64_t size;
    std::string name;  // mangled
  };
  std::vector<Function> functions_;  // by address
};

}  // namespace cuvmm::view
