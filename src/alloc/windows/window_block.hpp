// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "alloc/allocation.hpp"
#include "alloc/windows/linked_list.hpp"
#include "alloc/windows/window_shape.hpp"
#include "stream/free_ticket.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

struct SharedChunk;

// A block of blocking memory and its window, which stays mapped after the block is freed, for the
// next block of that size. With 10^6 of them every byte costs a megabyte.
struct WindowBlock : Allocation {
  enum class State : std::uint8_t {
    Unused,
    Live,      // the program holds it
    Ready,     // freed; any request may take it
    Pending,   // freed, but earlier work may still touch it
    Moving,    // live, and being copied to another chunk
    Released,  // freed while being copied
    Leaving,   // freed and to be unmapped, but the driver has refused so far
  };
  // How its piece's addresses are mapped. Other than Usable only if the driver refused both a
  // change and its undo.
  enum class Behind : std::uint8_t { Nothing, Mapped, Usable };

  // The block's own chunks, for its whole granules, in order.
  struct Whole {
    std::vector<ChunkRef> chunks;
    Size bytes = 0;           // mapped, of the chunks
    Size deferred_bytes = 0;  // at the beginning, before the first chunk: no memory yet (back())
    Size far_bytes = 0;       // of `bytes`, spilled
    std::size_t place = 0;    // index among all blocks with chunks of their own
  };

  FreeTicket ticket() const { return {freed_on, tick}; }
  void set_ticket(const FreeTicket& ticket) {
    freed_on = ticket.stream;
    tick = ticket.tick;
  }
  PlacedBlock placed(Size granule) const { return {address(), granted(), granule}; }
  WindowBlock*& next_unused() { return of_age.next; }

  SharedChunk* shared = nullptr;  // in which its piece lies
  std::unique_ptr<Whole> whole;
  Links<WindowBlock> of_size;  // freed blocks of its size
  Links<WindowBlock> of_age;   // freed blocks in the order in which they were freed
  std::uint64_t tick = 0;
  StreamId freed_on = no_stream;
  State state = State::Unused;
  Behind piece_behind = Behind::Nothing;
};
static_assert(sizeof(WindowBlock) + 2 * sizeof(void*) <= 128,
              "with its place in its chunk and in the AllocationMap");

}  // namespace cuvmm
