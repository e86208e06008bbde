// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/header.hpp"
#include "view/elf_symbols.hpp"

namespace cuvmm::view {

// The call stacks of a trace, in words: "forward (model.py:42)", "resize(unsigned long)
// (libfoo.so)".
class StackNames {
 public:
  explicit StackNames(const TraceHeader& header);

  bool is_empty() const { return stacks_.empty(); }

  // The stack of the caller; 0: none, or unknown.
  std::uint32_t caller_of(std::uint32_t stack) const;
  // The innermost place of a stack.
  std::string name_of(std::uint32_t stack);
  // All places of a stack, innermost first.
  std::vector<std::string> names_of(std::uint32_t stack);

 private:
  std::string in_words(const std::string& recorded);

  const std::uint64_t wall_ns_;
  std::unordered_map<std::uint32_t, TraceStack> stacks_;
  std::unordered_map<std::uint64_t, std::string> recorded_;  // by place
  std::unordered_map<std::uint64_t, std::string> names_;     // by place
  std::map<std::string, ElfSymbols> files_;
};

}  // namespace cuvmm::view
