// SPDX-License-Identifier: Apache-2.0
#include "base/option_table.hpp"

#include <cstdlib>

namespace cuvmm {
namespace {

constexpr std::size_t longest_shown = 80;

// A value shortened to fit in a line, with characters replaced that could end or disguise the line.
std::string shown(std::string_view value) {
  std::string text(value.substr(0, longest_shown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  if (value.size() > longest_shown) text += "...";
  return text;
}

}  // namespace

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::Default:
      return "default";
    case Origin::Environment:
      return "environment";
    case Origin::CommandLine:
      return "command line";
  }
  return "?";
}

std::string OptionProblem::text() const {
  return shown(name) + ": '" + shown(value) + "' is invalid; " + why;
}

Environment process_environment() {
  return [](const char* name) -> const char* { return ::secure_getenv(name); };
}

namespace detail {

std::optional<std::size_t> find_row(std::span<const OptionRow> rows, std::string_view name) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name == name) return i;
  }
  return {};
}

std::optional<OptionProblem> read_row(const OptionRow& row, void* table, std::string_view text) {
  if (row.read(table, text)) return {};
  return OptionProblem{row.name, std::string(text), "allowed: " + row.allowed()};
}

std::string describe(std::span<const OptionRow> rows, const void* defaults) {
  std::string text = "| Name | Default | Allowed | What it sets |\n|---|---|---|---|\n";
  for (const OptionRow& row : rows) {
    const std::string value = row.print(defaults);
    text += std::string("| `") + row.name + "` | " + (value.empty() ? "" : "`" + value + "`") +
            " | " + row.allowed() + " | " + row.comment + " |\n";
  }
  return text;
}

}  // namespace detail
}  // namespace cuvmm
