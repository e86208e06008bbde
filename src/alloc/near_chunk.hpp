// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/device_memory.hpp"

namespace cuvmm {

// Creates a chunk on the device that `properties` name, to replace one that the program created
// with them. Charges the device's budget, and if memory is lacking, releases unused memory of
// cuvmm's own and tries again. `device`: nullptr if cuvmm does not serve it.
Result<ChunkRef> create_near(const Driver& driver, DeviceMemory* device, Size size,
                             const CUmemAllocationProp& properties);

}  // namespace cuvmm
