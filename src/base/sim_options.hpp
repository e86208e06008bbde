// SPDX-License-Identifier: Apache-2.0
// The simulated driver's options stand here because the machinery does; nothing but src/sim, the
// command line and tests need them.
#pragma once

#include "base/options.hpp"

namespace cuvmm::sim {

enum class When : std::uint8_t { Eager, Lazy, Random };
enum class Backing : std::uint8_t { Memory, None };
enum class Leaks : std::uint8_t { Off, Report };

using DeviceCount = Bounded<0, 16>;

// When submitted work runs: "eager", "lazy", "random:42".
struct Order {
  When when = When::Eager;
  std::uint64_t seed = 0;
  bool operator==(const Order&) const = default;
};

namespace detail {
inline constexpr std::size_t option_count = 0
#define CUVMM_OPTION(member, name, value, comment) +1
#include "base/sim_options.def"
#undef CUVMM_OPTION
    ;
}  // namespace detail

}  // namespace cuvmm::sim

namespace cuvmm {

template <>
inline constexpr auto choice_names<sim::Backing> = std::to_array<Names>({"memory", "none"});
template <>
inline constexpr auto choice_names<sim::Leaks> = std::to_array<Names>({"off", "report"});

template <>
struct OptionType<sim::Order> {
  static std::optional<sim::Order> read(std::string_view text);
  static std::string print(sim::Order value);
  static std::string allowed() { return "eager, lazy, random:SEED"; }
};

}  // namespace cuvmm

namespace cuvmm::sim {

struct SimOptions : OptionTable<SimOptions, detail::option_count> {
#define CUVMM_OPTION(member, name, value, comment) decltype(value) member = value;
#include "base/sim_options.def"
#undef CUVMM_OPTION

  static const std::array<OptionRow, detail::option_count>& rows();
};

}  // namespace cuvmm::sim
