// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"

namespace cuvmm::sim {

// Creates a file that stands for device memory in exchanges between drivers. As with the dma-buf of
// a card, the process cannot read, write or map it, but can query its size. It holds no memory, as
// no other driver could access it. Returns -1 if the system cannot create a file.
int new_dma_buf(Size size);

}  // namespace cuvmm::sim
