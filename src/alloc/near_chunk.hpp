// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/device_memory.hpp"
#include "alloc/native_charge.hpp"

namespace cuvmm {

// A new chunk on the device that `properties` name, in place of one that the program created with
// them: charged to the device within its bounds. Unused memory of cuvmm's own makes way for it.
// `device`: nullptr if cuvmm does not serve it.
Result<ChunkRef> create_near(const Driver& driver, DeviceMemory* device, Size size,
                             const CUmemAllocationProp& properties);

}  // namespace cuvmm
