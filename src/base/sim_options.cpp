// SPDX-License-Identifier: Apache-2.0
#include "base/sim_options.hpp"

namespace cuvmm {

std::optional<sim::Order> OptionType<sim::Order>::read(std::string_view text) {
  text = without_outer_blanks(text);
  if (equal_in_any_case(text, "eager")) return sim::Order{.when = sim::When::Eager};
  if (equal_in_any_case(text, "lazy")) return sim::Order{.when = sim::When::Lazy};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !equal_in_any_case(text.substr(0, colon), "random")) {
    return {};
  }
  text.remove_prefix(colon + 1);
  const auto seed = take_whole_number(text);
  if (!seed || !text.empty()) return {};
  return sim::Order{.when = sim::When::Random, .seed = *seed};
}

std::string OptionType<sim::Order>::print(sim::Order value) {
  switch (value.when) {
    case sim::When::Eager:
      return "eager";
    case sim::When::Lazy:
      return "lazy";
    case sim::When::Random:
      return "random:" + std::to_string(value.seed);
  }
  return "?";
}

}  // namespace cuvmm

namespace cuvmm::sim {

const std::array<OptionRow, detail::option_count>& SimOptions::rows() {
  static const std::array<OptionRow, detail::option_count> all{
#define CUVMM_OPTION(member, name, value, comment) \
  CUVMM_OPTION_ROW(SimOptions, member, name, comment),
#include "base/sim_options.def"
#undef CUVMM_OPTION
  };
  return all;
}

}  // namespace cuvmm::sim
