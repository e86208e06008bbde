// SPDX-License-Identifier: Apache-2.0
// The books of a shared card: the contents of its file, which every process of the card maps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/size.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

inline constexpr std::size_t most_card_members = 128;

// The parts of a device that processes share by time.
enum class CardEngine : std::uint8_t { Compute, Copy };
inline constexpr std::size_t engine_count = 2;

// The use of one engine of one device by one process.
struct EngineUse {
  std::atomic<std::uint32_t> wanted{0};  // pieces of work waiting for the engine or running on it
  std::atomic<std::uint64_t> turns{0};
  std::atomic<std::uint64_t> busy_ns{0};
};

// One process of the card. Only that process writes here, except as noted; after its death, the
// holder of the books' lock does.
struct CardMember {
  std::atomic<std::uint64_t> process{0};            // 0 if the place is free
  std::atomic<std::uint64_t> process_namespace{0};  // the PID namespace of `process`
  std::array<std::atomic<Size>, most_devices> held{};
  std::array<std::array<EngineUse, engine_count>, most_devices> engines{};
  // A CUprocessState, changed by any process of the card that holds the books' lock. While it is
  // CHECKPOINTED, `held` is not on the card.
  std::atomic<std::uint32_t> checkpoint{0};
  std::atomic<std::uint32_t> calls{0};  // that are inside the driver
};

// Whose turn it is on an engine. Changed without a lock, so that no process can block another.
struct EngineTurn {
  std::atomic<std::uint32_t> holder{0};  // turn count; in the low bits, the member's place + 1
  std::atomic<std::uint64_t> began_ns{0};
  std::atomic<std::uint64_t> charged_ns{0};  // device time used in this turn
  std::atomic<std::uint64_t> idle_since_ns{0};
};

struct CardBooks {
  std::uint64_t mark = 0;  // identifies a file of this layout
  std::uint64_t devices = 0;
  Size memory = 0;  // of each device
  std::array<std::array<EngineTurn, engine_count>, most_devices> turns{};
  std::array<CardMember, most_card_members> members{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace cuvmm::sim
