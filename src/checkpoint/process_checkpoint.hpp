// SPDX-License-Identifier: Apache-2.0
// The driver's checkpoint of another process: its contexts and modules leave the card and come
// back. Every step starts from the state that the driver reports, so it can continue where a caller
// that died left off.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/clock.hpp"
#include "driver/driver.hpp"

namespace cuvmm::checkpoint {

struct CheckpointTimes {
  std::uint64_t lock_us = 0;
  std::uint64_t checkpoint_us = 0;
  std::uint64_t restore_us = 0;
  std::uint64_t unlock_us = 0;
};

// Where a process is after an attempt to take it off its devices or to bring it back.
enum class CheckpointEnd : std::uint8_t {
  OffDevices,
  OnDevices,
  Unknown,  // a step failed and could not be undone: its calls stay locked
};

class ProcessCheckpoint {
 public:
  // Loads the driver that the process uses, from that library.
  static Result<ProcessCheckpoint> of(pid_t process, const std::string& library);

  struct Outcome {
    CheckpointEnd end = CheckpointEnd::OffDevices;
    Error why;  // unless OffDevices
  };
  enum class Begun : std::uint8_t { No, ByAnother };
  // Locks the process's driver calls, waiting at most `timeout` for calls in flight, and takes it
  // off the card. Begun::ByAnother: another process of cuvmm's began this, so continues from the
  // state that it left. Begun::No: if the process is not running, another tool has locked it, and
  // it is left alone. After Unknown, bring_back() may help later.
  Outcome take_off(Begun begun, Duration timeout);
  // Restores the process to the card and unlocks its calls. Can be repeated after a failure.
  Result<void> bring_back();
  // Whether a bring_back() needs room on the devices. Fails if the driver does not know the
  // process.
  Result<bool> is_off() const;

  const CheckpointTimes& times() const { return times_; }

 private:
  ProcessCheckpoint(pid_t process, const Driver& driver) : process_(process), driver_(driver) {}
  Result<CUprocessState> state() const;
  Result<void> lock(Duration timeout);
  Result<void> checkpoint();
  Result<void> restore();
  Result<void> unlock();

  pid_t process_;
  Driver driver_;
  CheckpointTimes times_;
};

// Whether the process runs on the simulated driver, so that its times are not a card's.
bool is_simulated(pid_t process);

}  // namespace cuvmm::checkpoint
