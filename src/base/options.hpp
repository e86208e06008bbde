// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/hami_variables.hpp"
#include "base/log.hpp"
#include "base/option_table.hpp"

namespace cuvmm {

enum class Mode : std::uint8_t { Vmm, Monitor, Off };
enum class Grow : std::uint8_t { Loose, Tight };
enum class FreeMode : std::uint8_t { Exact, Relaxed };
enum class Compact : std::uint8_t { Auto, All, On, Off };
enum class Switch : std::uint8_t { Off, On };
enum class Resize : std::uint8_t { Auto, Elide, Off };
enum class Schedule : std::uint8_t { Off, Fifo, RoundRobin, Priority, Fair };
enum class NodeUse : std::uint8_t { Off, Auto, Require };
enum class SpillTo : std::uint8_t { Off, Host, Peer, Auto };

using Priority = Bounded<-100, 100>;
using Weight = Bounded<1, 10'000>;
using Percent = Bounded<1, 100>;

// Where memory is spilled to, and how much of each device's: "host", "auto:32G", "peer:50%".
struct Spill {
  SpillTo to = SpillTo::Off;
  SizeLimit limit = SizeLimit::none();
  bool operator==(const Spill&) const = default;
};

using Names = std::string_view;
template <>
inline constexpr auto choice_names<Mode> = std::to_array<Names>({"VMM", "MONITOR", "OFF"});
template <>
inline constexpr auto choice_names<LogLevel> = std::to_array<Names>({"ERROR", "WARNING", "INFO",
                                                                     "DEBUG"});
template <>
inline constexpr auto choice_names<Grow> = std::to_array<Names>({"loose", "tight"});
template <>
inline constexpr auto choice_names<FreeMode> = std::to_array<Names>({"exact", "relaxed"});
template <>
inline constexpr auto choice_names<Compact> = std::to_array<Names>({"auto", "all", "on", "off"});
template <>
inline constexpr auto choice_names<Switch> = std::to_array<Names>({"off", "on"});
template <>
inline constexpr auto choice_names<Resize> = std::to_array<Names>({"auto", "elide", "off"});
template <>
inline constexpr auto choice_names<Schedule> = std::to_array<Names>({"off", "fifo", "round_robin",
                                                                     "priority", "fair"});
template <>
inline constexpr auto choice_names<NodeUse> = std::to_array<Names>({"off", "auto", "require"});
template <>
inline constexpr auto choice_names<SpillTo> = std::to_array<Names>({"off", "host", "peer", "auto"});

template <>
struct OptionType<Spill> {
  static std::optional<Spill> read(std::string_view text);
  static std::string print(const Spill& value);
  static std::string allowed();
};

namespace detail {
inline constexpr std::size_t option_count = 0
#define CUVMM_OPTION(member, name, value, comment) +1
#include "base/options.def"
#undef CUVMM_OPTION
    ;
}  // namespace detail

// The configuration of cuvmm in this process: read once, then passed around as a value.
struct Options : OptionTable<Options, detail::option_count> {
#define CUVMM_OPTION(member, name, value, comment) decltype(value) member = value;
#include "base/options.def"
#undef CUVMM_OPTION

  HamiVariables hami;  // used unless an option of cuvmm's overrides them

  static const std::array<OptionRow, detail::option_count>& rows();
  // As for every table, plus HAMi-core's variables.
  static Options from_environment(const Environment& environment = process_environment());
};

}  // namespace cuvmm
