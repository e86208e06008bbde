// SPDX-License-Identifier: Apache-2.0
#include "alloc/program_creation.hpp"

#include "alloc/out_of_memory.hpp"
#include "vmm/chunk.hpp"

namespace cuvmm {

// Without a limit, and while the driver has memory, the call costs no more than natively: no device
// is served for it.
CUresult ProgramCreation::create(Handle* chunk, Size size, const CUmemAllocationProp& properties,
                                 const CallDriver& call_driver) {
  const bool is_on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int ordinal = properties.location.id;
  DeviceMemory* device =
      is_on_device && memory_.native().bounds_chunks() ? memory_.devices().serve(ordinal) : nullptr;
  const auto attempt = [&]() -> Result<void> {
    NativeCharge charge;
    // The driver refuses any other size.
    const bool counts = device != nullptr && is_multiple(size, device->granule());
    if (counts) charge = TRY(NativeCharge::within_limit(device->bound(), size));
    Handle handle = 0;
    TRY(driver_.check(call_driver(&handle), "create the program's chunk", size));
    *chunk = chunks_.created(handle, size, properties, std::move(charge));
    return {};
  };
  Result<void> made = attempt();
  if (made.ok()) return CUDA_SUCCESS;
  if (!is_on_device || !DeviceReclaim::may_help(made)) return to_cuda(made.error());
  const bool may_be_spilled = ProgramChunk::may_be_spilled(properties);
  const bool has_asked_driver = made.error().driver_code != 0;
  if (!may_be_spilled && !has_asked_driver) {
    const CUresult answer = answer_if_there_were_room(size, properties, call_driver);
    if (answer != CUDA_SUCCESS && answer != CUDA_ERROR_OUT_OF_MEMORY) return answer;
  }
  device = memory_.devices().serve(ordinal);
  if (device == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (size > device->memory()) return refuse_allocation(ordinal);
  const auto elsewhere = [&]() -> Result<void> {
    const ChunkRef spilled = TRY(device->store().take_spilled(size));
    *chunk = chunks_.spilled(spilled, size, properties);
    return {};
  };
  made = memory_.take_natively(*device, size, attempt,
                               may_be_spilled ? elsewhere : Memory::NativeAttempt{});
  return made.ok() ? CUDA_SUCCESS : to_cuda(made.error());
}

// The driver refuses what it does not support before it looks for memory, and a program may try
// something else then: without a fabric, chunks that have a file descriptor.
CUresult ProgramCreation::answer_if_there_were_room(Size size,
                                                    const CUmemAllocationProp& properties,
                                                    const CallDriver& call_driver) const {
  Handle handle = 0;
  const CUresult answer = call_driver(&handle);
  if (answer == CUDA_SUCCESS) {
    const Chunk given_up = Chunk::adopt(driver_, handle, size, properties);
  }
  return answer;
}

}  // namespace cuvmm
