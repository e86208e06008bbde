// SPDX-License-Identifier: Apache-2.0
// Locking a process's calls and taking it off the card. Without a shared card there is no other
// process to act on, and nothing is supported.
#include <algorithm>
#include <iterator>

#include "sim/bodies.hpp"
#include "sim/card/checkpoint.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

template <class Words>
bool are_zero(const Words& words) {
  return std::all_of(std::begin(words), std::end(words), [](auto word) { return word == 0; });
}

template <class Function, class... Arguments>
CUresult on_card(Function function, Arguments&&... arguments) {
  if (Process::get().is_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  SharedCard* const card = Process::get().card_before_start();
  if (card == nullptr) return lacking("cuCheckpointProcess", "needs a shared card (VMM_SIM_CARD)");
  return function(*card, std::forward<Arguments>(arguments)...);
}

}  // namespace

CUVMM_SIM(cuCheckpointProcessGetState)(int process, CUprocessState* state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_card(&read_checkpoint_state, process, *state);
}

CUVMM_SIM(cuCheckpointProcessLock)(int process, CUcheckpointLockArgs* args) {
  const CUcheckpointLockArgs given = args != nullptr ? *args : CUcheckpointLockArgs{};
  if (given.reserved0 != 0 || !are_zero(given.reserved1)) return CUDA_ERROR_INVALID_VALUE;
  return on_card(&lock_calls, process, given.timeoutMs);
}

CUVMM_SIM(cuCheckpointProcessCheckpoint)(int process, CUcheckpointCheckpointArgs* args) {
  if (args != nullptr && !are_zero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  return on_card(&leave_card, process);
}

CUVMM_SIM(cuCheckpointProcessRestore)(int process, CUcheckpointRestoreArgs* args) {
  if (args != nullptr && (!are_zero(args->reserved) || args->reserved1 != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (args != nullptr && args->gpuPairsCount != 0) {
    return lacking("cuCheckpointProcessRestore", "does not simulate other devices");
  }
  return on_card(&return_to_card, process);
}

CUVMM_SIM(cuCheckpointProcessUnlock)(int process, CUcheckpointUnlockArgs* args) {
  if (args != nullptr && !are_zero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  return on_card(&unlock_calls, process);
}

}  // namespace cuvmm::sim
