// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/size.hpp"

namespace cuvmm::sim {

// When asynchronous work runs. Programs may rely on none of them, so tests try all three.
enum class Order : std::uint8_t {
  Eager,   // as soon as it can
  Lazy,    // only when somebody waits for it or asks about it
  Random,  // by chance, repeatable by seed as far as threads allow
};

enum class BackingMode : std::uint8_t {
  Memory,  // device memory is real memory
  None,    // full bookkeeping, no bytes: for replay and scale
};

// The simulated driver's options, read once when the library is first asked for anything.
struct Settings {
  int devices = 1;
  Size memory = 8 * GiB;  // each device
  int driver_version = 13000;
  Order order = Order::Eager;
  std::uint64_t seed = 0;
  BackingMode backing = BackingMode::Memory;
  Size granularity = 2 * MiB;
  bool report_leaks = false;
  std::string faults;
  std::string delays;
};

inline constexpr int most_devices = 8;

const Settings& settings();

// One line on standard error, from the simulated driver itself.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace cuvmm::sim
