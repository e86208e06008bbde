// SPDX-License-Identifier: Apache-2.0
// How processes of a shared card lock each other's driver calls and take each other off the card,
// behind cuCheckpointProcess*. The state is in the card's books, so it outlives the process that
// changed it, as on a card.
#pragma once

#include <cstdint>

#include "sim/card/shared_card.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Makes the calling thread count as inside a driver call. Waits first while the process is locked
// or checkpointed. Does nothing on a card that is not shared.
class CallOnCard {
 public:
  explicit CallOnCard(SharedCard* card);
  ~CallOnCard();
  CallOnCard(const CallOnCard&) = delete;
  CallOnCard& operator=(const CallOnCard&) = delete;

 private:
  const bool counts_;
  CardMember* member_ = nullptr;  // nullptr within an outer call of this thread
};

// Each answers CUDA_ERROR_INVALID_VALUE if no process of this number uses the card, and
// CUDA_ERROR_ILLEGAL_STATE if its state allows no such change.
CUresult read_checkpoint_state(SharedCard& card, int process, CUprocessState& state);
// Waits for the process's calls, and for its work on the card's engines. CUDA_ERROR_NOT_READY, and
// the process runs, if that takes longer; zero means without limit.
CUresult lock_calls(SharedCard& card, int process, std::uint32_t timeout_ms);
CUresult unlock_calls(SharedCard& card, int process);
CUresult leave_card(SharedCard& card, int process);
// CUDA_ERROR_OUT_OF_MEMORY, and the process stays off the card, if it has no room.
CUresult return_to_card(SharedCard& card, int process);

}  // namespace cuvmm::sim
