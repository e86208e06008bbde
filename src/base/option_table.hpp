// SPDX-License-Identifier: Apache-2.0
// The common part of all option tables. A table is a struct with one member per row of its .def
// list; see base/options.hpp for an example.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/option_types.hpp"

namespace cuvmm {

// Where an option's value came from.
enum class Origin : std::uint8_t { Default, Environment, CommandLine };
const char* name_of(Origin origin);

// A rejected value. The option keeps its previous value.
struct OptionProblem {
  std::string name;
  std::string value;
  std::string why;

  // One line: "VMM_GROW: 'lose' is invalid; allowed: loose, tight".
  std::string text() const;
};

// The current state of an option, for display: `cuvmm config`, --help, docs/options.md.
struct OptionValue {
  const char* name;
  std::string value;
  std::string default_value;
  std::string allowed;
  const char* comment;
  Origin origin;
};

// Behaves like getenv: returns nullptr if the name is not set.
using Environment = std::function<const char*(const char* name)>;

// The process's own environment. Empty under secure execution, where an attacker controls it.
Environment process_environment();

// One row of a .def list, for any table that contains it.
struct OptionRow {
  const char* name;
  const char* comment;
  std::string (*print)(const void* table);
  bool (*read)(void* table, std::string_view text);
  std::string (*allowed)();
};

namespace detail {
std::optional<std::size_t> find_row(std::span<const OptionRow> rows, std::string_view name);
std::optional<OptionProblem> read_row(const OptionRow& row, void* table, std::string_view text);
std::string describe(std::span<const OptionRow> rows, const void* defaults);
}  // namespace detail

// Gives Table all operations on its rows. Table has one member per row and `static constexpr
// std::array rows()`; `count` is the number of rows.
template <class Table, std::size_t count>
class OptionTable {
 public:
  // The defaults, overridden by the environment. A variable set to the empty string counts as
  // unset. A rejected value leaves the default and is added to problems().
  static Table from_environment(const Environment& environment = process_environment()) {
    Table table;
    for (const OptionRow& row : Table::rows()) {
      const char* text = environment(row.name);
      if (text == nullptr || *text == '\0') continue;
      if (auto problem = table.set(row.name, text, Origin::Environment)) {
        table.problems_.push_back(*std::move(problem));
      }
    }
    return table;
  }
  const std::vector<OptionProblem>& problems() const { return problems_; }

  // Sets one option by name. Returns the problem if the name or value is invalid.
  [[nodiscard]] std::optional<OptionProblem> set(std::string_view name, std::string_view text,
                                                 Origin origin) {
    const auto rows = Table::rows();
    const auto index = detail::find_row(rows, name);
    if (!index) return OptionProblem{std::string(name), std::string(text), "no such option"};
    auto problem = detail::read_row(rows[*index], self(), text);
    if (!problem) origins_[*index] = origin;
    return problem;
  }

  std::vector<OptionValue> list() const {
    const Table defaults;
    std::vector<OptionValue> values;
    const auto rows = Table::rows();
    for (std::size_t i = 0; i < count; ++i) {
      const OptionRow& row = rows[i];
      values.push_back({row.name, row.print(self()), row.print(&defaults), row.allowed(),
                        row.comment, origins_[i]});
    }
    return values;
  }

  // The table in Markdown, as it appears in docs/options.md.
  static std::string describe() {
    const Table defaults;
    return detail::describe(Table::rows(), &defaults);
  }

 private:
  Table* self() { return static_cast<Table*>(this); }
  const Table* self() const { return static_cast<const Table*>(this); }

  std::array<Origin, count> origins_{};
  std::vector<OptionProblem> problems_;
};

// The row for `member` of Table, for use in a .def list's macro.
#define CUVMM_OPTION_ROW(Table, member, name, comment)                           \
  ::cuvmm::OptionRow {                                                           \
    name, comment,                                                               \
        [](const void* table) {                                                  \
          return ::cuvmm::OptionType<decltype(Table::member)>::print(            \
              static_cast<const Table*>(table)->member);                         \
        },                                                                       \
        [](void* table, std::string_view text) {                                 \
          auto value = ::cuvmm::OptionType<decltype(Table::member)>::read(text); \
          if (value) static_cast<Table*>(table)->member = *std::move(value);     \
          return value.has_value();                                              \
        },                                                                       \
        &::cuvmm::OptionType<decltype(Table::member)>::allowed                   \
  }

}  // namespace cuvmm
