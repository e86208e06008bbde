// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"

namespace cuvmm {

// What is answered of an address, in the width in which the driver writes it. What is refused when
// asked by itself has a value too: a query for many attributes at once is refused none.
struct PointerAnswer {
  std::uint64_t value = 0;
  std::size_t width = 0;
  CUresult answer = CUDA_SUCCESS;

  void write(void* data) const;
};

// Where the driver would speak of the chunk or the reservation behind one of our addresses, the
// answers describe the allocation as the program requested it, wherever its memory lies now.
// Nothing where the driver's own answer is right, of memory that is there.
std::optional<PointerAnswer> pointer_answer(const Memory& memory, const AllocationFacts& held,
                                            CUdeviceptr address, CUpointer_attribute attribute);

}  // namespace cuvmm
