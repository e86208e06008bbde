// SPDX-License-Identifier: Apache-2.0
// A command line as data, for completions and manuals.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace cuvmm::usage {

struct DescribedOption {
  std::vector<std::string> flags;  // "-o", "--output"
  std::string value;               // "FILE", "{loose,tight}"; empty for a flag
  std::string default_value;       // "10s"; may be empty
  std::string text;
  std::vector<std::string> choices;  // if only some values are allowed
};

struct DescribedOperand {
  std::string type;  // "TRACE", "COMMAND"; empty: the command takes none
  bool is_required = false;
  bool is_repeatable = false;
  std::vector<std::string> choices;
};

struct DescribedCommand {
  std::string name;
  std::string text;
  std::string footer;
  DescribedOperand operand;
  std::vector<DescribedOption> options;
};

// The program itself, then its commands except hidden ones.
std::vector<DescribedCommand> described(const CLI::App& app);

}  // namespace cuvmm::usage
