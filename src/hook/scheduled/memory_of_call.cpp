// SPDX-License-Identifier: Apache-2.0
#include "hook/scheduled/memory_of_call.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "hook/named_memory.hpp"

namespace cuvmm::hook {
namespace {

// Access to mapped memory is granted, and memory is spilled, in granules of at least this size.
constexpr Size granule = 2 * MiB;
constexpr Size most_granules_asked = 16;

// Whether each granule of the range is as asked; false for large ranges, which are not looked at
// granule by granule.
bool is_each_granule(CUdeviceptr address, Size size, const AddressVisitor& as_asked) {
  if (size > most_granules_asked * granule) return false;
  const CUdeviceptr last = address + (size != 0 ? size - 1 : 0);
  for (CUdeviceptr at = address; at < last; at = (at / granule + 1) * granule) {
    if (!as_asked(at)) return false;
  }
  return as_asked(last);
}

// Memory that the program maps itself may have holes, or be inaccessible to the device.
bool is_open_to(const Driver& driver, int device, CUdeviceptr address, Size size, Touch how) {
  const CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  const auto is_open = [&](CUdeviceptr at) {
    unsigned long long rights = 0;
    if (driver.cuMemGetAccess(&rights, &where, at) != CUDA_SUCCESS) return false;
    return rights == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
           (how == Touch::Read && rights == CU_MEM_ACCESS_FLAGS_PROT_READ);
  };
  return is_each_granule(address, size, AddressVisitor{is_open});
}

// The driver knows where the chunks lie, whatever answer the program gets.
bool may_be_on_host(Engine& engine, CUdeviceptr address, Size size) {
  const SpillTo to = engine.options().spill.to;
  if (to != SpillTo::Host && to != SpillTo::Auto) return false;
  const auto is_on_device = [&](CUdeviceptr at) {
    unsigned type = 0;
    return engine.driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
               CUDA_SUCCESS &&
           type != CU_MEMORYTYPE_HOST;
  };
  return !is_each_granule(address, size, AddressVisitor{is_on_device});
}

}  // namespace

std::optional<AllocationFacts> served_at(Engine& engine, CUdeviceptr address) {
  Serving* const serving = engine.serving();
  return serving != nullptr ? serving->memory.find(address) : std::nullopt;
}

CUcontext owner_of(const AllocationFacts& served) {
  const ContextMemory* const owner = served.context_memory();
  return owner != nullptr ? owner->context() : nullptr;
}

MemoryOfCall look_up(Engine& engine, CUdeviceptr address, Size size, Touch how) {
  if (address == 0) return {};
  if (const auto served = served_at(engine, address)) {
    if ((served->pins & pin::sync_memops) != 0) return {};
    const bool fits = size <= served->granted - (address - served->address);
    if (!fits) return {};
    const bool is_spilled = may_be_on_host(engine, address, size);
    return {is_spilled ? CopyMemory::Spilled : CopyMemory::OnDevice, served->device,
            owner_of(*served)};
  }
  unsigned type = 0;
  unsigned is_managed = 0;
  unsigned is_waited_for = 0;
  int device = -1;
  CUdeviceptr begin = 0;
  std::size_t length = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute asked[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
  void* answers[] = {&type, &is_managed, &device, &begin, &length, &context, &pool, &is_waited_for};
  const Driver& driver = engine.driver();
  const auto has_told = [&](unsigned first) {
    return driver.cuPointerGetAttributes(first, asked, answers, address) == CUDA_SUCCESS;
  };
  // Mapped memory does not have the last attribute.
  if (!has_told(8) && !has_told(7)) return {};
  if (type == 0) return {CopyMemory::Pageable};
  if (is_managed != 0 || address < begin || size > begin + length - address) return {};
  if (type == CU_MEMORYTYPE_HOST) return {CopyMemory::Pinned};
  if (type != CU_MEMORYTYPE_DEVICE || is_waited_for != 0) return {};
  const bool is_mapped_by_program = context == nullptr && pool == nullptr;
  if (is_mapped_by_program && !is_open_to(driver, device, address, size, how)) return {};
  return {CopyMemory::OnDevice, device, pool == nullptr ? context : nullptr};
}

CUcontext owner_of(Engine& engine, CUdeviceptr address) {
  if (const auto served = served_at(engine, address)) return owner_of(*served);
  unsigned type = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                 CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void* answers[] = {&type, &context, &pool};
  const bool is_known = address != 0 && engine.driver().cuPointerGetAttributes(
                                            3, asked, answers, address) == CUDA_SUCCESS;
  return is_known && type == CU_MEMORYTYPE_DEVICE && pool == nullptr ? context : nullptr;
}

bool stage(void* to, const void* from, Size size) {
  std::memcpy(to, from, size);
  return true;
}

bool stage(void* to, CUdeviceptr from, Size size) {
  const iovec there{reinterpret_cast<void*>(from), size};
  const iovec here{to, size};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace cuvmm::hook
