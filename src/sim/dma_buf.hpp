// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"

namespace cuvmm::sim {

// A file that stands for device memory among drivers. Nothing in the process can read, write or
// map the card's either; its size can be asked for. Here it holds no memory, as there is no other
// driver to look. -1 where the system has no file to give.
int new_dma_buf(Size size);

}  // namespace cuvmm::sim
