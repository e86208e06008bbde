// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuvmm::replay {

inline std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// The positions of the required columns, from the header line; other columns are allowed.
template <std::size_t count>
class CsvColumns {
 public:
  using Names = std::array<std::string_view, count>;
  using Values = std::array<std::string_view, count>;

  // Nothing if a column is missing.
  static std::optional<CsvColumns> find(std::string_view head, const Names& names) {
    const auto fields = fields_of(head);
    CsvColumns columns;
    columns.fields_ = fields.size();
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t place = 0;
      while (place < fields.size() && fields[place] != names[i]) ++place;
      if (place == fields.size()) return {};
      columns.places_[i] = place;
    }
    return columns;
  }

  // Nothing if the number of fields differs from the header line's.
  std::optional<Values> values(std::string_view line) const {
    const auto fields = fields_of(line);
    if (fields.size() != fields_) return {};
    Values values;
    for (std::size_t i = 0; i < count; ++i) values[i] = fields[places_[i]];
    return values;
  }

 private:
  std::array<std::size_t, count> places_{};
  std::size_t fields_ = 0;
};

// A field as error messages show it.
inline std::string quoted(std::string_view field) {
  return "'" + std::string(field.substr(0, 80)) + "'";
}

// Parses all of `text` as one number.
std::optional<std::uint64_t> read_decimal(std::string_view text);
// A pointer: "0x7f00", "7f00", "(nil)".
std::optional<std::uint64_t> read_pointer(std::string_view text);
// A stream: decimal, or a pointer that begins with 0x.
std::optional<std::uint64_t> read_stream(std::string_view text);

}  // namespace cuvmm::replay
