// SPDX-License-Identifier: Apache-2.0
#include "base/sim_options.hpp"

namespace cuvmm {

std::optional<SimOrder> OptionType<SimOrder>::read(std::string_view text) {
  text = without_outer_blanks(text);
  if (equal_in_any_case(text, "eager")) return SimOrder{.when = SimWhen::Eager};
  if (equal_in_any_case(text, "lazy")) return SimOrder{.when = SimWhen::Lazy};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !equal_in_any_case(text.substr(0, colon), "random")) {
    return {};
  }
  text.remove_prefix(colon + 1);
  const auto seed = take_whole_number(text);
  if (!seed || !text.empty()) return {};
  return SimOrder{.when = SimWhen::Random, .seed = *seed};
}

std::string OptionType<SimOrder>::print(SimOrder value) {
  switch (value.when) {
    case SimWhen::Eager:
      return "eager";
    case SimWhen::Lazy:
      return "lazy";
    case SimWhen::Random:
      return "random:" + std::to_string(value.seed);
  }
  return "?";
}

// Accepts only characters that are safe in a file name and cannot leave its folder.
std::optional<CardName> OptionType<CardName>::read(std::string_view text) {
  constexpr std::size_t longest = 64;
  text = without_outer_blanks(text);
  if (text.empty() || text.size() > longest || text.front() == '.') return {};
  for (const char letter : text) {
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_letter && !is_digit && letter != '.' && letter != '_' && letter != '-') return {};
  }
  return CardName{std::string(text)};
}

const std::array<OptionRow, detail::sim_option_count>& SimOptions::rows() {
  static const std::array<OptionRow, detail::sim_option_count> all{
#define CUVMM_OPTION(member, name, value, comment) \
  CUVMM_OPTION_ROW(SimOptions, member, name, comment),
#include "base/sim_options.def"
#undef CUVMM_OPTION
  };
  return all;
}

}  // namespace cuvmm
