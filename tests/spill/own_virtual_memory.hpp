// SPDX-License-Identifier: Apache-2.0
// A program that manages virtual memory itself, as the hooks see its calls.
#pragma once

#include <algorithm>

#include "alloc/program_creation.hpp"
#include "paused_program.hpp"

namespace cuvmm::test {

class OwnVirtualMemory {
 public:
  using Handle = CUmemGenericAllocationHandle;

  OwnVirtualMemory(Program& program, Size size) : program_(program), size_(size) {
    CUcontext context = nullptr;
    EXPECT_CUDA(driver().cuCtxGetCurrent(&context));
    program.memory->contexts().began(context);
    EXPECT_CUDA(driver().cuMemAddressReserve(&address_, size, 0, 0, 0));
  }
  // Works with a driver that does not fail.
  ~OwnVirtualMemory() {
    for (const auto& [at, size] : mapped_) unmap_now(at, size);
    for (const Handle handle : held_) release_now(handle);
    EXPECT_CUDA(test::driver().cuMemAddressFree(address_, size_));
  }
  OwnVirtualMemory(const OwnVirtualMemory&) = delete;
  OwnVirtualMemory& operator=(const OwnVirtualMemory&) = delete;

  CUdeviceptr address() const { return address_; }

  static CUmemAllocationProp plain() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return properties;
  }
  static CUmemAllocationProp exportable() {
    CUmemAllocationProp properties = plain();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }

  Handle create(Size size, const CUmemAllocationProp& properties = plain()) {
    Handle handle = 0;
    ProgramCreation creation{driver(), *program_.memory, *program_.chunks};
    EXPECT_CUDA(creation.create(&handle, size, properties, [&](Handle* made) {
      return driver().cuMemCreate(made, size, &properties, 0);
    }));
    held_.push_back(handle);
    return handle;
  }
  void release(Handle name) {
    std::erase(held_, name);
    release_now(name);
  }
  void map(Size offset, Size size, Handle name) {
    const CUdeviceptr at = address_ + offset;
    ASSERT_CUDA(driver().cuMemMap(at, size, 0, program_.chunks->handle_of(name), 0));
    program_.chunks->mapped(at, size, name);
    mapped_.emplace_back(at, size);
  }
  void allow(Size offset, Size size, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc line{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, flags};
    ASSERT_CUDA(driver().cuMemSetAccess(address_ + offset, size, &line, 1));
    program_.chunks->set_access(address_ + offset, size, {&line, 1});
  }
  // As most programs do: a chunk, mapped and open to its device.
  Handle add(Size offset, Size size, const CUmemAllocationProp& properties = plain()) {
    const Handle handle = create(size, properties);
    map(offset, size, handle);
    allow(offset, size);
    return handle;
  }
  unsigned long long access(Size offset) const {
    const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    unsigned long long flags = 0;
    EXPECT_CUDA(test::driver().cuMemGetAccess(&flags, &device, address_ + offset));
    return flags;
  }
  // What begins there.
  void unmap(Size offset) {
    const auto at = std::find_if(mapped_.begin(), mapped_.end(),
                                 [&](const auto& one) { return one.first == address_ + offset; });
    unmap_now(at->first, at->second);
    mapped_.erase(at);
  }
  void remove(Size offset, Handle name) {
    unmap(offset);
    release(name);
  }
  // The driver's handle of the chunk that is mapped there.
  Handle backing(Size offset) const {
    Handle handle = 0;
    EXPECT_CUDA(test::driver().cuMemRetainAllocationHandle(
        &handle, reinterpret_cast<void*>(address_ + offset)));
    EXPECT_CUDA(test::driver().cuMemRelease(handle));
    return handle;
  }

 private:
  const Driver& driver() const { return program_.driver; }
  void unmap_now(CUdeviceptr at, Size size) {
    const auto places = program_.chunks->unmap(at, size);
    EXPECT_CUDA(test::driver().cuMemUnmap(at, size));
  }
  void release_now(Handle name) {
    const auto released = program_.chunks->release(name);
    if (released.is_for_driver) {
      EXPECT_CUDA(test::driver().cuMemRelease(released.handle));
    }
  }

  Program& program_;
  const Size size_;
  CUdeviceptr address_ = 0;
  std::vector<std::pair<CUdeviceptr, Size>> mapped_;
  std::vector<Handle> held_;
};

}  // namespace cuvmm::test
