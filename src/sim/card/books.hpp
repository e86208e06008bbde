// SPDX-License-Identifier: Apache-2.0
// The books of a shared card: what lies in its file, which every process of the card maps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/size.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

inline constexpr std::size_t most_card_members = 128;

// Parts of a device that work of different processes shares by time.
enum class CardEngine : std::uint8_t { Compute, Copy };
inline constexpr std::size_t engine_count = 2;

// One process, on one engine of one device.
struct EngineUse {
  std::atomic<std::uint32_t> wanted{0};  // pieces of its work that wait for the engine or run on it
  std::atomic<std::uint64_t> turns{0};
  std::atomic<std::uint64_t> busy_ns{0};
};

// One process of the card. Only that process writes here, and once it is dead the holder of the
// books' lock.
struct CardMember {
  std::atomic<std::uint64_t> process{0};            // 0 where nobody has this place
  std::atomic<std::uint64_t> process_namespace{0};  // in which that number means something
  std::array<std::atomic<Size>, most_devices> held{};
  std::array<std::array<EngineUse, engine_count>, most_devices> engines{};
};

// Whose turn it is on an engine. Nobody needs a lock to change it, so that nobody can stop another.
struct EngineTurn {
  std::atomic<std::uint32_t> holder{0};  // a count of turns, and below it the member's place + 1
  std::atomic<std::uint64_t> began_ns{0};
  std::atomic<std::uint64_t> charged_ns{0};  // device time used of this turn
  std::atomic<std::uint64_t> idle_since_ns{0};
};

struct CardBooks {
  std::uint64_t mark = 0;  // what a file of this layout begins with
  std::uint64_t devices = 0;
  Size memory = 0;  // of each device
  std::array<std::array<EngineTurn, engine_count>, most_devices> turns{};
  std::array<CardMember, most_card_members> members{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace cuvmm::sim
