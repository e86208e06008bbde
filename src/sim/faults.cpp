// SPDX-License-Identifier: Apache-2.0
#include "sim/faults.hpp"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "base/made_once.hpp"
#include "base/no_forks.hpp"
#include "base/option_types.hpp"
#include "base/text.hpp"
#include "sim/errors.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

using Name = std::size_t;  // the first row of that API name stands for all of its versions

std::array<Name, row_count> names_of_rows() {
  std::array<Name, row_count> all{};
  for (std::size_t row = 0; row < row_count; ++row) {
    all[row] = row;
    for (std::size_t earlier = 0; earlier < row; ++earlier) {
      if (std::string_view(name_of(Row(earlier))) == name_of(Row(row))) {
        all[row] = earlier;
        break;
      }
    }
  }
  return all;
}

std::optional<Name> name_index(std::string_view name) {
  for (std::size_t row = 0; row < row_count; ++row) {
    if (name == name_of(Row(row))) return row;
  }
  return std::nullopt;
}

struct Fault {
  Name name;
  std::uint64_t calls_left;  // it strikes the call that makes this 0
  Interfered effect;
};

std::optional<Interfered> parse_effect(std::string_view text) {
  if (text == "SIGKILL") return Interfered{.is_last = true};
  const auto error = error_named(text);
  if (!error || *error == CUDA_SUCCESS) return std::nullopt;
  return Interfered{.answer = *error};
}

struct Delay {
  Name name;
  std::uint32_t microseconds;
};

// Calls `one` with each comma-separated part. Returns false as soon as one call does.
template <class One>
bool for_each_part(std::string_view text, One&& one) {
  text = without_outer_blanks(text);
  if (text.empty()) return true;
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!one(without_outer_blanks(text.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::optional<Fault> parse_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::size_t equals = text.find('=');
  if (colon == std::string_view::npos || equals == std::string_view::npos || colon > equals) {
    return std::nullopt;
  }
  const auto name = name_index(text.substr(0, colon));
  const auto which = read_integer(text.substr(colon + 1, equals - colon - 1));
  const auto effect = parse_effect(text.substr(equals + 1));
  if (!name || !which || *which < 1 || !effect) return std::nullopt;
  return Fault{*name, static_cast<std::uint64_t>(*which), *effect};
}

std::optional<Delay> parse_delay(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const auto name = name_index(text.substr(0, equals));
  const auto time = OptionType<cuvmm::Duration>::read(text.substr(equals + 1));
  if (!name || !time || time->count() > 3'600'000'000) return std::nullopt;
  return Delay{*name, static_cast<std::uint32_t>(time->count())};
}

// Created at the first call and never destroyed, since calls may come until the process ends.
class Interference {
 public:
  static Interference& get() {
    static constinit MadeOnce<Interference> interference;
    return interference.get([] { return Interference{}; });
  }

  Interfered before(Row row) {
    const Name name = names_[static_cast<std::size_t>(row)];
    calls_[name].fetch_add(1, std::memory_order_relaxed);
    wait(delays_[name].load(std::memory_order_relaxed));
    return faulty_.load(std::memory_order_relaxed) ? fault_of(name) : Interfered{};
  }

  bool set_faults(std::string_view text) {
    std::vector<Fault> faults;
    const bool parsed = for_each_part(text, [&](std::string_view part) {
      const auto fault = parse_fault(part);
      if (fault) faults.push_back(*fault);
      return fault.has_value();
    });
    if (!parsed) return false;
    const NoForks meanwhile;
    const Holding holding{lock_};
    faults_ = std::move(faults);
    faulty_.store(!faults_.empty());
    return true;
  }

  bool set_delays(std::string_view text) {
    std::vector<Delay> delays;
    const bool parsed = for_each_part(text, [&](std::string_view part) {
      const auto delay = parse_delay(part);
      if (delay) delays.push_back(*delay);
      return delay.has_value();
    });
    if (!parsed) return false;
    const NoForks meanwhile;
    const Holding holding{lock_};
    for (auto& delay : delays_) delay.store(0, std::memory_order_relaxed);
    for (const Delay& delay : delays) delays_[delay.name].store(delay.microseconds);
    return true;
  }

  std::uint64_t calls_of(std::string_view name) const {
    if (!name.empty()) {
      const auto index = name_index(name);
      return index ? calls_[*index].load() : 0;
    }
    std::uint64_t all = 0;
    for (const auto& calls : calls_) all += calls.load(std::memory_order_relaxed);
    return all;
  }

 private:
  // Several threads may make one at once, but only one of them warns.
  Interference() {
    static constinit Once warns_of_fault;
    static constinit Once warns_of_delay;
    if (!set_faults(settings().fault) && warns_of_fault.first()) {
      warn("VMM_SIM_FAULT", settings().fault,
           "FUNCTION:NUMBER=CUDA_ERROR_... or =SIGKILL, several with commas; functions and errors "
           "as cuda.h names them");
    }
    if (!set_delays(settings().delay) && warns_of_delay.first()) {
      warn("VMM_SIM_DELAY", settings().delay, "FUNCTION=TIME (cuMemMap=25us), several with commas");
    }
  }

  static void warn(const char* option, const std::string& value, const char* allowed) {
    CUVMM_LOG(Warning, "%s: '%s' is invalid and ignored; allowed: %s", option, value.c_str(),
              allowed);
  }

  Interfered fault_of(Name name) {
    const NoForks meanwhile;  // a child forked before cuInit needs the lock
    const Holding holding{lock_};
    Interfered effect;
    std::erase_if(faults_, [&](Fault& fault) {
      if (fault.name != name || --fault.calls_left != 0) return false;
      effect = fault.effect;
      return true;
    });
    faulty_.store(!faults_.empty());
    return effect;
  }

  // Sleeping is accurate only to some 50 microseconds, so the rest is spent spinning.
  static void wait(std::uint32_t microseconds) {
    if (microseconds == 0) return;
    constexpr std::uint32_t inexact = 100;
    const std::uint64_t end = now_ns() + std::uint64_t{microseconds} * 1000;
    if (microseconds > inexact) {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds - inexact));
    }
    while (now_ns() < end) sched_yield();
  }

  const std::array<Name, row_count> names_ = names_of_rows();
  std::array<std::atomic<std::uint64_t>, row_count> calls_{};
  std::array<std::atomic<std::uint32_t>, row_count> delays_{};
  std::atomic<bool> faulty_{false};

  Lock lock_{LockOrder::SimFaults};  // guards the members below
  std::vector<Fault> faults_;
};

}  // namespace

Interfered interfere_before(Row row) {
  return Interference::get().before(row);
}

bool set_faults(std::string_view text) {
  return Interference::get().set_faults(text);
}

bool set_delays(std::string_view text) {
  return Interference::get().set_delays(text);
}

std::uint64_t calls_of(std::string_view name) {
  return Interference::get().calls_of(name);
}

}  // namespace cuvmm::sim
