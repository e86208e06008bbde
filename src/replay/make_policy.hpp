// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/options.hpp"
#include "replay/policy.hpp"

namespace cuvmm::replay {

enum class PolicyName : std::uint8_t { Arena, Expandable, Caching, Driver };
inline constexpr std::array<std::string_view, 4> policy_names{"arena", "expandable", "caching",
                                                              "driver"};
inline std::string_view name_of(PolicyName name) {
  return policy_names[static_cast<std::size_t>(name)];
}

struct PolicySettings {
  PolicyName name = PolicyName::Arena;
  Size limit = unlimited;           // physical memory; `unlimited`: the card's
  Size chunk = 0;                   // for arena and expandable; 0: they choose
  Grow grow = Grow::Loose;          // for arena
  Compact compact = Compact::Auto;  // for arena
  std::string sim_driver;           // path of the simulated driver
};

// The memory of the modelled card: the measured one's, or enough for a trace that is too large for
// it or a limit beyond it.
Size memory_of_card(const ReplayTrace& trace, Size limit);

// Creates a policy for that trace. A process can create only one policy that needs the simulated
// driver (arena, driver).
Result<std::unique_ptr<Policy>> make_policy(const PolicySettings& settings,
                                            const ReplayTrace& trace);

}  // namespace cuvmm::replay
