// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"
#include "alloc/program_chunks.hpp"

namespace cuvmm {

// The answer to a query of one attribute of an address, in the width that the driver writes. A
// refused attribute has a value too: a query of many attributes at once refuses none.
struct PointerAnswer {
  std::uint64_t value = 0;
  std::size_t width = 0;
  CUresult answer = CUDA_SUCCESS;

  void write(void* data) const;
};

// The driver would describe the chunk or the reservation behind one of our addresses. These answers
// describe the allocation as the program requested it, wherever its memory lies now. nullopt if the
// driver's own answer is right, once the memory is present.
std::optional<PointerAnswer> pointer_answer(const Memory& memory, const AllocationFacts& held,
                                            CUdeviceptr address, CUpointer_attribute attribute);

// The same for memory that the program manages itself: describes the chunk as the program requested
// it. nullopt if the driver's own answer is right.
std::optional<PointerAnswer> pointer_answer(const ProgramChunks& chunks, CUdeviceptr address,
                                            CUpointer_attribute attribute);

}  // namespace cuvmm
