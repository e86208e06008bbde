// SPDX-License-Identifier: Apache-2.0
#include "base/options.hpp"

namespace cuvmm {

std::optional<Spill> OptionType<Spill>::read(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto to = OptionType<SpillTo>::read(text.substr(0, colon));
  if (!to) return {};
  if (colon == std::string_view::npos) return Spill{.to = *to};
  const auto limit = OptionType<SizeLimit>::read(text.substr(colon + 1));
  if (!limit || *to == SpillTo::Off) return {};
  return Spill{.to = *to, .limit = *limit};
}

std::string OptionType<Spill>::print(const Spill& value) {
  const std::string to = OptionType<SpillTo>::print(value.to);
  return value.limit.is_none() ? to : to + ":" + value.limit.print();
}

std::string OptionType<Spill>::allowed() {
  return OptionType<SpillTo>::allowed() + "; all but off with a size or share (host:32G, auto:50%)";
}

const std::array<OptionRow, detail::option_count>& Options::rows() {
  static const std::array<OptionRow, detail::option_count> all{
#define CUVMM_OPTION(member, name, value, comment) CUVMM_OPTION_ROW(Options, member, name, comment),
#include "base/options.def"
#undef CUVMM_OPTION
  };
  return all;
}

Options Options::from_environment(const Environment& environment) {
  Options options = OptionTable::from_environment(environment);
  options.hami = HamiVariables::from(environment);
  const auto is_set = [&](const char* name) {
    const char* const text = environment(name);
    return text != nullptr && *text != '\0';
  };
  if (is_set("VMM_LIMIT")) {
    options.hami.device_limits = {};
  } else if (options.hami.limit) {
    static_cast<void>(options.set("VMM_LIMIT", SizeLimit::of_bytes(*options.hami.limit).print(),
                                  Origin::Environment));
  }
  if (!is_set("VMM_PRIORITY") && options.hami.priority) {
    static_cast<void>(
        options.set("VMM_PRIORITY", std::to_string(*options.hami.priority), Origin::Environment));
  }
  if (!is_set("VMM_CAP") && options.hami.share.value_or(0) != 0) {
    static_cast<void>(
        options.set("VMM_CAP", std::to_string(*options.hami.share), Origin::Environment));
  }
  return options;
}

}  // namespace cuvmm
