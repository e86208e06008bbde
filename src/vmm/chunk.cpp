// SPDX-License-Identifier: Apache-2.0
#include "vmm/chunk.hpp"

#include <fcntl.h>

#include <cstdint>

#include "base/clock.hpp"
#include "driver/device_attribute.hpp"
#include "trace/record_event.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

// The driver refuses device flags for a location that is not a device, and the RDMA flag on a
// device without RDMA.
Result<bool> takes_rdma_flag(const Driver& driver, Location where) {
  if (!where.is_device()) return false;
  return TRY(device_attribute(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                              where.id(), "ask for RDMA with chunks")) != 0;
}

CUmemAllocationProp properties(Location where, Export exportable) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = where.cuda();
  if (exportable == Export::Yes) {
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  return wanted;
}

Result<Location> location_of(const CUmemAllocationProp& found) {
  switch (found.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return Location::device(found.location.id);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return Location::host(found.location.id);
    default:
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = "import chunk",
                   .subject = "it lies neither on a device nor on a host node"};
  }
}

// `time` is a moment at which the chunk was certainly ours; 0: now.
void record(TraceEvent event, CUmemGenericAllocationHandle handle, Size size, Location where,
            std::uint64_t time = 0) {
  const bool on_device = where.is_device();
  CUVMM_TRACE(.time = time, .event = event,
              .flags = on_device ? std::uint16_t{0} : trace_flag::on_host,
              .device = on_device ? static_cast<std::int16_t>(where.id()) : no_device,
              .detail = static_cast<std::uint32_t>(where.id()), .size = size, .other = handle);
}

}  // namespace

Result<Size> granularity_of(const Driver& driver, Location where) {
  const CUmemAllocationProp wanted = properties(where, Export::No);
  std::size_t step = 0;
  TRY(driver.check(
      driver.cuMemGetAllocationGranularity(&step, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "ask for granularity"));
  if (step == 0) return Error::invalid("ask for granularity", "the driver answered 0");
  return Size{step};
}

Result<Chunk> Chunk::create(const Driver& driver, Size size, Location where, Export exportable) {
  retry_releases();
  if (size == 0) return Error::invalid("create chunk", "of no bytes");
  CUmemAllocationProp wanted = properties(where, exportable);
  wanted.allocFlags.gpuDirectRDMACapable = TRY(takes_rdma_flag(driver, where)) ? 1 : 0;
  CUmemGenericAllocationHandle handle = 0;
  TRY(driver.check(driver.cuMemCreate(&handle, size, &wanted, 0), "create chunk", size));
  record(TraceEvent::Create, handle, size, where);
  return Chunk{driver, handle, size, where, exportable, Origin::Created};
}

Result<Chunk> Chunk::create_as(const Driver& driver, Size size,
                               const CUmemAllocationProp& properties) {
  retry_releases();
  CUmemGenericAllocationHandle handle = 0;
  TRY(driver.check(driver.cuMemCreate(&handle, size, &properties, 0), "create chunk", size));
  return adopt(driver, handle, size, properties);
}

Chunk Chunk::adopt(const Driver& driver, CUmemGenericAllocationHandle handle, Size size,
                   const CUmemAllocationProp& properties) {
  const auto types = static_cast<unsigned>(properties.requestedHandleTypes);
  const bool exportable = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  return Chunk{driver,
               handle,
               size,
               Location::device(properties.location.id),
               exportable ? Export::Yes : Export::No,
               Origin::Program};
}

Result<Chunk> Chunk::import_fd(const Driver& driver, const Fd& fd, Size size) {
  retry_releases();
  if (size == 0) return Error::invalid("import chunk", "of no bytes");
  if (!fd.is_open()) return Error::invalid("import chunk", "no descriptor");
  CUmemGenericAllocationHandle handle = 0;
  void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.number()));
  TRY(driver.check(driver.cuMemImportFromShareableHandle(&handle, descriptor,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "import chunk", size));
  // Own the handle first; the location is set below.
  Chunk chunk{driver, handle, size, Location::device(0), Export::Yes, Origin::Imported};
  CUmemAllocationProp found{};
  TRY(driver.check(driver.cuMemGetAllocationPropertiesFromHandle(&found, handle),
                   "ask where a chunk lies"));
  chunk.location_ = TRY(location_of(found));
  return chunk;
}

Chunk::Chunk(const Driver& driver, CUmemGenericAllocationHandle handle, Size size, Location where,
             Export exportable, Origin origin)
    : driver_(&driver),
      handle_(handle),
      size_(size),
      location_(where),
      exportable_(exportable),
      origin_(origin) {
  add_own_reference(handle);
}

Chunk::Chunk(Chunk&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      handle_(other.handle_),
      size_(other.size_),
      location_(other.location_),
      exportable_(other.exportable_),
      origin_(other.origin_) {}

Chunk& Chunk::operator=(Chunk&& other) noexcept {
  Chunk moved{std::move(other)};
  std::swap(driver_, moved.driver_);
  std::swap(handle_, moved.handle_);
  std::swap(size_, moved.size_);
  std::swap(location_, moved.location_);
  std::swap(exportable_, moved.exportable_);
  std::swap(origin_, moved.origin_);
  return *this;
}

Chunk::~Chunk() {
  if (driver_ == nullptr) return;
  if (origin_ == Origin::Created) record(TraceEvent::Release, handle_, size_, location_);
  release_chunk_or_defer(
      handle_, [driver = driver_, handle = handle_] { return driver->cuMemRelease(handle); });
}

Result<void> Chunk::release() {
  if (driver_ == nullptr) return Error::invalid("release chunk", "it was released before");
  const std::uint64_t began = trace_is_on() ? now_ns() : 0;
  const CUresult answer = driver_->cuMemRelease(handle_);
  if (!taken_back(answer)) return driver_->error_of(answer, "release chunk", size_);
  remove_own_reference(handle_);
  if (origin_ == Origin::Created) record(TraceEvent::Release, handle_, size_, location_, began);
  driver_ = nullptr;
  return {};
}

Result<Fd> Chunk::export_fd() const {
  if (driver_ == nullptr) return Error::invalid("export chunk", "it was released before");
  if (!exportable()) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "export chunk",
                 .subject = "it was created without a handle type",
                 .asked = size_};
  }
  int fd = -1;
  TRY(driver_->check(driver_->cuMemExportToShareableHandle(
                         &fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     "export chunk", size_));
  // Started programs must not keep the memory alive. The driver does not say whether it sets this.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Fd{fd};
}

}  // namespace cuvmm
