// SPDX-License-Identifier: Apache-2.0
#include "sim/card/checkpoint.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <functional>

#include "base/clock.hpp"

namespace cuvmm::sim {
namespace {

thread_local int calls_deep = 0;

void wait_while_locked(const CardMember& member, std::uint32_t state) {
  // Bounded, in case the process that unlocks is killed before it wakes the waiting threads.
  constexpr timespec longest{.tv_sec = 0, .tv_nsec = 20'000'000};
  ::syscall(SYS_futex, &member.checkpoint, FUTEX_WAIT, state, &longest, nullptr, 0);
}

void move_to(CardMember& member, CUprocessState state) {
  member.checkpoint.store(state);
  ::syscall(SYS_futex, &member.checkpoint, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

CardMember* find_member(CardBooks& books, int process) {
  const std::uint64_t own_namespace = pid_namespace();
  const auto found =
      std::find_if(books.members.begin(), books.members.end(), [&](const CardMember& member) {
        return process > 0 && member.process == static_cast<std::uint64_t>(process) &&
               member.process_namespace == own_namespace;
      });
  return found == books.members.end() ? nullptr : &*found;
}

CUresult with_member(SharedCard& card, int process,
                     const std::function<CUresult(CardBooks&, CardMember&)>& use) {
  CUresult answer = CUDA_ERROR_OPERATING_SYSTEM;
  card.with_books([&](CardBooks& books) {
    CardMember* const member = find_member(books, process);
    answer = member != nullptr ? use(books, *member) : CUDA_ERROR_INVALID_VALUE;
  });
  return answer;
}

CUresult change(SharedCard& card, int process, CUprocessState from, CUprocessState to) {
  return with_member(card, process, [&](CardBooks&, CardMember& member) {
    if (member.checkpoint.load() != from) return CUDA_ERROR_ILLEGAL_STATE;
    move_to(member, to);
    return CUDA_SUCCESS;
  });
}

bool is_busy(const CardMember& member) {
  if (member.calls.load() != 0) return true;
  for (const auto& engines : member.engines) {
    for (const EngineUse& use : engines) {
      if (use.wanted.load() != 0) return true;
    }
  }
  return false;
}

bool has_room(const CardBooks& books, const CardMember& member) {
  for (int device = 0; device < static_cast<int>(books.devices); ++device) {
    const Size needed = member.held[static_cast<std::size_t>(device)].load();
    if (held_on(books, device) + needed > books.memory) return false;
  }
  return true;
}

}  // namespace

CallOnCard::CallOnCard(SharedCard* card) : counts_(card != nullptr) {
  if (!counts_ || calls_deep++ != 0) return;
  member_ = &card->books().members[card->place()];
  for (;;) {
    member_->calls.fetch_add(1);
    const std::uint32_t state = member_->checkpoint.load();
    if (state == CU_PROCESS_STATE_RUNNING) return;
    member_->calls.fetch_sub(1);
    wait_while_locked(*member_, state);
  }
}

CallOnCard::~CallOnCard() {
  if (counts_) --calls_deep;
  if (member_ != nullptr) member_->calls.fetch_sub(1);
}

CUresult read_checkpoint_state(SharedCard& card, int process, CUprocessState& state) {
  return with_member(card, process, [&](CardBooks&, CardMember& member) {
    state = static_cast<CUprocessState>(member.checkpoint.load());
    return CUDA_SUCCESS;
  });
}

CUresult lock_calls(SharedCard& card, int process, std::uint32_t timeout_ms) {
  constexpr useconds_t rest = 200;
  const std::uint64_t until = now_us() + std::uint64_t{timeout_ms} * 1000;
  const CUresult begun = change(card, process, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
  if (begun != CUDA_SUCCESS) return begun;
  for (;;) {
    bool is_late = timeout_ms != 0 && now_us() >= until;
    bool waits = true;
    const CUresult seen = with_member(card, process, [&](CardBooks&, CardMember& member) {
      waits = is_busy(member);
      if (waits && is_late) move_to(member, CU_PROCESS_STATE_RUNNING);
      return CUDA_SUCCESS;
    });
    if (seen != CUDA_SUCCESS || !waits) return seen;
    if (is_late) return CUDA_ERROR_NOT_READY;
    ::usleep(rest);
  }
}

CUresult unlock_calls(SharedCard& card, int process) {
  return change(card, process, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

CUresult leave_card(SharedCard& card, int process) {
  return change(card, process, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
}

CUresult return_to_card(SharedCard& card, int process) {
  return with_member(card, process, [](CardBooks& books, CardMember& member) {
    if (member.checkpoint.load() != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
    if (!has_room(books, member)) return CUDA_ERROR_OUT_OF_MEMORY;
    move_to(member, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
  });
}

}  // namespace cuvmm::sim
