// SPDX-License-Identifier: Apache-2.0
// Memory: the four frees, and what each waits for.
#include "alloc/memory.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

namespace {

bool is_about_capture(CUresult answer) {
  return answer >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         answer <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

Answer Memory::free(CUdeviceptr address) {
  if (address == 0) return std::nullopt;
  const auto found = held_.find_start(address);
  if (!found) return held_.find_holder(address) ? Answer{CUDA_ERROR_INVALID_VALUE} : std::nullopt;
  if (const CUresult lost = work_.error_of_lost_context(); lost != CUDA_SUCCESS) return lost;
  if (found->facts.served == Served::Imported) return CUDA_ERROR_INVALID_VALUE;
  if (found->facts.served != Served::StreamOrdered) return free_blocking(*found);
  const CUcontext current = current_context(dependencies_.driver);
  if (current == nullptr || contexts_.is_dead(current)) return std::nullopt;
  if (dependencies_.captures.any()) {
    const CUresult refusal = work_.refusal_of_free(found->facts.device);
    if (refusal != CUDA_SUCCESS) return refusal;
  }
  // The driver does not wait here either: the program is done with the memory.
  if (!held_.try_release(*found)) return CUDA_ERROR_INVALID_VALUE;
  auto* const pool = found->facts.pool_memory();
  const StreamId allocated_on = PoolMemory::stream_of(*found->allocation);
  if (StreamState* state = dependencies_.clock.table().by_id(allocated_on)) {
    state->frees_memory_of(found->facts.device);
  }
  pool->free(*found->allocation, dependencies_.clock.ticket_of_allocation(allocated_on));
  reclaim_.bound_cache(pool->device());
  return CUDA_SUCCESS;
}

Answer Memory::free_blocking(const AllocationMap::Found& found) {
  auto& owner = *found.facts.context_memory();
  if (dependencies_.captures.any()) {
    const InContext in_context{dependencies_.driver, owner.context()};
    const CUresult refusal =
        in_context.ok() ? work_.free_as_the_driver_does() : in_context.answer();
    if (refusal == CUDA_SUCCESS) return free_now(found);
    if (refusal != CUDA_ERROR_OUT_OF_MEMORY) return refusal;
    return free_later(found);  // the card has no room for the probe
  }
  if (settings_.free == FreeMode::Relaxed && work_.sees_everything()) return free_later(found);
  if (!held_.try_release(found)) return CUDA_ERROR_INVALID_VALUE;
  const auto waited = work_.wait_for(owner);
  if (!waited.ok() && waited.error().kind == ErrorKind::OutOfMemory) {
    // The card has no room for the probe that waits. The ticket keeps the memory from being reused
    // too early.
    end_blocking(found, dependencies_.clock.ticket_of_all(owner.context()));
    return CUDA_SUCCESS;
  }
  if (!waited.ok()) {
    held_.restore(found);
    return to_cuda(waited.error());
  }
  end_blocking(found, {});
  return CUDA_SUCCESS;
}

// A block that other processes have open is freed when they are done with it.
void Memory::end_blocking(const AllocationMap::Found& found, const FreeTicket& ticket) {
  const bool was_lent = (found.allocation->pins() & pin::legacy_ipc) != 0;
  if (was_lent && !lending_.end(found.facts.buffer_id, ticket)) return;
  auto& owner = *found.facts.context_memory();
  owner.free_after(*found.allocation, ticket);
  reclaim_.bound_cache(owner.device());
}

Answer Memory::free_now(const AllocationMap::Found& found) {
  if (!held_.try_release(found)) return CUDA_ERROR_INVALID_VALUE;
  end_blocking(found, {});
  return CUDA_SUCCESS;
}

Answer Memory::free_later(const AllocationMap::Found& found) {
  if (!held_.try_release(found)) return CUDA_ERROR_INVALID_VALUE;
  const auto& owner = *found.facts.context_memory();
  end_blocking(found, dependencies_.clock.ticket_of_all(owner.context()));
  return CUDA_SUCCESS;
}

Answer Memory::free_ordered(CUdeviceptr address, StreamName stream) {
  if (address == 0) return std::nullopt;
  const auto found = held_.find_start(address);
  if (!found) return held_.find_holder(address) ? Answer{CUDA_ERROR_INVALID_VALUE} : std::nullopt;
  if (const CUresult lost = work_.error_of_lost_context(); lost != CUDA_SUCCESS) return lost;
  if (found->facts.served == Served::Imported) return CUDA_ERROR_INVALID_VALUE;
  if (work_.is_capturing(stream)) return std::nullopt;
  StreamState* state = dependencies_.clock.table().find(stream);
  if (state == nullptr || contexts_.is_dead(state->context)) return std::nullopt;
  StreamClock::Operation operation{dependencies_.clock, *state, StreamClock::Operation::Kind::Free,
                                   found->facts.asked};
  const bool is_placed = operation.answer() == CUDA_SUCCESS;
  if (!is_placed && (is_sticky(operation.answer()) || is_about_capture(operation.answer()))) {
    return operation.answer();
  }
  if (!held_.try_release(*found)) return CUDA_ERROR_INVALID_VALUE;
  state->frees_memory_of(found->facts.device);
  // If no event could be recorded, the memory is reused once all work of the context is done.
  const FreeTicket ticket =
      is_placed ? operation.freed() : dependencies_.clock.ticket_of_all(state->context);
  if (found->facts.served == Served::StreamOrdered) {
    found->facts.pool_memory()->free(*found->allocation, ticket);
  } else {
    end_blocking(*found, ticket);
  }
  return CUDA_SUCCESS;
}

}  // namespace cuvmm
