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
  Size limit = unlimited;   // of physical memory, else the card's
  Size chunk = 0;           // of arena and expandable: 0 for what they choose themselves
  Grow grow = Grow::Loose;  // of arena
  std::string sim_driver;   // where the simulated driver lies
};

// For that trace. A process can make one that needs the simulated driver (arena, driver).
Result<std::unique_ptr<Policy>> make_policy(const PolicySettings& settings,
                                            const ReplayTrace& trace);

}  // namespace cuvmm::replay
