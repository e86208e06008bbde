// SPDX-License-Identifier: Apache-2.0
#include "alloc/near_chunk.hpp"

#include "alloc/device_reclaim.hpp"
#include "alloc/native_charge.hpp"

namespace cuvmm {
namespace {

Result<ChunkRef> try_to_create(const Driver& driver, const DeviceMemory* device, Size size,
                               const CUmemAllocationProp& properties) {
  NativeCharge charge;
  if (device != nullptr) charge = TRY(NativeCharge::within_limit(device->bound(), size));
  return adopt_charged(TRY(Chunk::create_as(driver, size, properties)), std::move(charge));
}

}  // namespace

Result<ChunkRef> create_near(const Driver& driver, DeviceMemory* device, Size size,
                             const CUmemAllocationProp& properties) {
  auto made = try_to_create(driver, device, size, properties);
  if (!DeviceReclaim::may_help(made) || device == nullptr) return made;
  device->reclaim_own(made.error(), size);
  return try_to_create(driver, device, size, properties);
}

}  // namespace cuvmm
