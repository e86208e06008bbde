// SPDX-License-Identifier: Apache-2.0
// The simulated driver's options. They are here because the option machinery is; only src/sim, the
// command line and tests use them.
#pragma once

#include "base/options.hpp"

namespace cuvmm {

enum class SimWhen : std::uint8_t { Eager, Lazy, Random };
enum class SimBacking : std::uint8_t { Memory, None };
enum class SimLeaks : std::uint8_t { Off, Report };

using SimDeviceCount = Bounded<0, 8>;

// When submitted work runs: "eager", "lazy", "random:42".
struct SimOrder {
  SimWhen when = SimWhen::Eager;
  std::uint64_t seed = 0;
  bool operator==(const SimOrder&) const = default;
};

// The name of a simulated card shared between processes; empty if it is not shared.
struct CardName {
  std::string name;
  bool operator==(const CardName&) const = default;
};

template <>
inline constexpr auto choice_names<SimBacking> = std::to_array<Names>({"memory", "none"});
template <>
inline constexpr auto choice_names<SimLeaks> = std::to_array<Names>({"off", "report"});

template <>
struct OptionType<SimOrder> {
  static std::optional<SimOrder> read(std::string_view text);
  static std::string print(SimOrder value);
  static std::string allowed() { return "eager, lazy, random:SEED"; }
};

template <>
struct OptionType<CardName> {
  static std::optional<CardName> read(std::string_view text);
  static std::string print(const CardName& value) { return value.name; }
  static std::string allowed() { return "a name of up to 64 letters, digits, and . _ -"; }
};

namespace detail {
inline constexpr std::size_t sim_option_count = 0
#define CUVMM_OPTION(member, name, value, comment) +1
#include "base/sim_options.def"
#undef CUVMM_OPTION
    ;
}  // namespace detail

struct SimOptions : OptionTable<SimOptions, detail::sim_option_count> {
#define CUVMM_OPTION(member, name, value, comment) decltype(value) member = value;
#include "base/sim_options.def"
#undef CUVMM_OPTION

  static const std::array<OptionRow, detail::sim_option_count>& rows();
};

}  // namespace cuvmm
