// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/process_checkpoint.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/stopwatch.hpp"
#include "share/process.hpp"

namespace cuvmm::checkpoint {
namespace {

constexpr const char* taking_off = "take the process off its devices";
constexpr const char* simulated_driver = "/cuvmm/sim/libcuda.so";

Error has_failed() {
  return {.kind = ErrorKind::DriverFailed,
          .doing = taking_off,
          .subject = "the driver says that it cannot continue (CU_PROCESS_STATE_FAILED)"};
}

}  // namespace

bool is_simulated(pid_t process) {
  std::ifstream maps{share::proc_folder_of(process) + "/maps"};
  for (std::string line; std::getline(maps, line);) {
    if (line.find(simulated_driver) != std::string::npos) return true;
  }
  return false;
}

Result<ProcessCheckpoint> ProcessCheckpoint::of(pid_t process, const std::string& library) {
  const Driver driver = TRY(load_driver(library.c_str()));
  // A driver without the functions says so by itself.
  if (!driver.has(Call::cuCheckpointProcessCheckpoint)) {
    CUprocessState state{};
    return driver.error_of(driver.cuCheckpointProcessGetState(process, &state), taking_off);
  }
  return ProcessCheckpoint{process, driver};
}

// The first call of each operation. Driver 580 needs no cuInit for any of them, which would take
// 35 ms; another one may.
Result<CUprocessState> ProcessCheckpoint::state() const {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  CUresult answer = driver_.cuCheckpointProcessGetState(process_, &state);
  if (answer == CUDA_ERROR_NOT_INITIALIZED) {
    TRY(driver_.check(driver_.cuInit(0), "start the driver"));
    answer = driver_.cuCheckpointProcessGetState(process_, &state);
  }
  TRY(driver_.check(answer, "read the process's state"));
  return state;
}

Result<void> ProcessCheckpoint::lock(Duration timeout) {
  const Stopwatch stopwatch{times_.lock_us};
  CUcheckpointLockArgs args{};
  // Zero would mean without limit.
  args.timeoutMs = static_cast<unsigned>(
      std::clamp<Duration::rep>(timeout.count() / 1000, 1, an_hour.count() / 1000));
  return driver_.check(driver_.cuCheckpointProcessLock(process_, &args),
                       "lock the process's calls");
}

Result<void> ProcessCheckpoint::checkpoint() {
  const Stopwatch stopwatch{times_.checkpoint_us};
  CUcheckpointCheckpointArgs args{};
  return driver_.check(driver_.cuCheckpointProcessCheckpoint(process_, &args), taking_off);
}

Result<void> ProcessCheckpoint::restore() {
  const Stopwatch stopwatch{times_.restore_us};
  CUcheckpointRestoreArgs args{};
  return driver_.check(driver_.cuCheckpointProcessRestore(process_, &args),
                       "restore it to its devices");
}

Result<void> ProcessCheckpoint::unlock() {
  const Stopwatch stopwatch{times_.unlock_us};
  CUcheckpointUnlockArgs args{};
  return driver_.check(driver_.cuCheckpointProcessUnlock(process_, &args),
                       "unlock the process's calls");
}

ProcessCheckpoint::Outcome ProcessCheckpoint::take_off(Begun begun, Duration timeout) {
  const CheckpointEnd as_found =
      begun == Begun::No ? CheckpointEnd::OnDevices : CheckpointEnd::Unknown;
  const auto before = state();
  if (!before.ok()) return {as_found, before.error()};
  if (*before == CU_PROCESS_STATE_FAILED) return {CheckpointEnd::Unknown, has_failed()};
  if (*before != CU_PROCESS_STATE_RUNNING && begun == Begun::No) {
    return {CheckpointEnd::OnDevices,
            Error::invalid(taking_off, "another tool has locked its driver calls")};
  }
  if (*before == CU_PROCESS_STATE_CHECKPOINTED) return {};
  if (*before == CU_PROCESS_STATE_RUNNING) {
    if (const auto locked = lock(timeout); !locked.ok()) {
      return {bring_back().ok() ? CheckpointEnd::OnDevices : CheckpointEnd::Unknown,
              locked.error()};
    }
  }
  const auto taken = checkpoint();
  if (taken.ok()) return {};
  const auto undone = bring_back();
  return {undone.ok() ? CheckpointEnd::OnDevices : CheckpointEnd::Unknown, taken.error()};
}

Result<void> ProcessCheckpoint::bring_back() {
  CUprocessState now = TRY(state());
  if (now == CU_PROCESS_STATE_CHECKPOINTED) {
    TRY(restore());
    now = TRY(state());
  }
  if (now == CU_PROCESS_STATE_LOCKED) {
    TRY(unlock());
    now = TRY(state());
  }
  if (now == CU_PROCESS_STATE_RUNNING) return {};
  return has_failed();
}

Result<bool> ProcessCheckpoint::is_off() const {
  return TRY(state()) == CU_PROCESS_STATE_CHECKPOINTED;
}

}  // namespace cuvmm::checkpoint
