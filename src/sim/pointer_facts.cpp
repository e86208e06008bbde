// SPDX-License-Identifier: Apache-2.0
// All answers measured on an H200, for each kind of memory.
#include "sim/pointer_facts.hpp"

#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

PointerFact number(std::uint32_t value) {
  return {.value = value, .width = sizeof value};
}
PointerFact wide(std::uint64_t value) {
  return {.value = value, .width = sizeof value};
}
PointerFact none(Size width) {
  return {.answer = CUDA_ERROR_INVALID_VALUE, .value = 0, .width = width};
}

// There is no such pointer: the call returns an error, but still writes 0.
PointerFact no_pointer() {
  return none(sizeof(CUdeviceptr));
}

std::uint32_t flags_of(Access access) {
  if (access == Access::ReadWrite) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  return access == Access::Read ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

// Physical memory that is not a chunk also has an id.
constexpr std::uint64_t first_id_of_host_memory = std::uint64_t{1} << 32;

Size width_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return sizeof(std::uint64_t);
    default:
      return sizeof(std::uint32_t);
  }
}

}  // namespace

PointerFacts::PointerFacts(CUdeviceptr address)
    : address_(address), current_(ContextStack::current()) {
  const AddressSpace& space = Process::get().space();
  allocation_ = space.allocation_at(address);
  auto mapping = space.mapping_at(address);
  if (allocation_.has_value()) {
    block_ = std::move(mapping);
    return;
  }
  if (mapping.has_value() && mapping->owner == Owner::Program) chunk_ = std::move(mapping);
  reservation_ = space.reservation_at(address);
}

bool PointerFacts::is_blocking() const {
  return allocation_.has_value() && allocation_->kind == AllocationKind::Blocking;
}

bool PointerFacts::is_host_allocation() const {
  return allocation_.has_value() && (allocation_->kind == AllocationKind::PinnedHost ||
                                     allocation_->kind == AllocationKind::Registered ||
                                     allocation_->kind == AllocationKind::Managed);
}

int PointerFacts::home() const {
  if (allocation_.has_value()) return allocation_->device;
  const CUmemLocation& where = chunk_->chunk->properties().location;
  return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : 0;
}

bool PointerFacts::is_reached_by(int who) const {
  if (is_host_allocation()) return true;
  const auto& mapping = allocation_.has_value() ? block_ : chunk_;
  return mapping.has_value() && mapping->access[static_cast<std::size_t>(who)] != Access::None;
}

std::pair<CUdeviceptr, Size> PointerFacts::mapping() const {
  if (chunk_.has_value()) return {chunk_->address, chunk_->size()};
  if (block_.has_value()) return {block_->address, block_->size()};
  if (allocation_->kind == AllocationKind::Registered) {
    return {allocation_->address, allocation_->size};
  }
  // assumed: the card lets small pinned allocations share 2 MiB
  return {allocation_->address, round_up(allocation_->size, 2 * MiB)};
}

PointerFact PointerFacts::context() const {
  if (chunk_.has_value() || allocation_->kind == AllocationKind::Async) return wide(0);
  const auto owner = allocation_->context.lock();
  return wide(owner == nullptr ? 0 : reinterpret_cast<std::uint64_t>(owner->handle()));
}

PointerFact PointerFacts::memory_type() const {
  const bool is_on_host =
      chunk_.has_value() ? chunk_->chunk->properties().location.type != CU_MEM_LOCATION_TYPE_DEVICE
                         : allocation_->kind == AllocationKind::PinnedHost ||
                               allocation_->kind == AllocationKind::Registered;
  return number(is_on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
}

PointerFact PointerFacts::device_pointer() const {
  if (current_ == nullptr) return {.answer = CUDA_ERROR_INVALID_CONTEXT, .value = 0, .width = 8};
  return is_reached_by(current_->device().ordinal()) ? wide(address_) : no_pointer();
}

PointerFact PointerFacts::host_pointer() const {
  return is_reached_by(host_access) ? wide(address_) : no_pointer();
}

PointerFact PointerFacts::access_flags() const {
  if (chunk_.has_value()) {
    const int who = current_ != nullptr ? current_->device().ordinal() : home();
    return number(flags_of(chunk_->access[static_cast<std::size_t>(who)]));
  }
  const bool is_read_only = allocation_->kind == AllocationKind::Registered &&
                            (allocation_->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  return number(flags_of(is_read_only ? Access::Read : Access::ReadWrite));
}

PointerFact PointerFacts::pool() const {
  if (!allocation_.has_value()) return wide(0);
  const auto pool = allocation_->pool.lock();
  return wide(pool == nullptr ? 0 : reinterpret_cast<std::uint64_t>(pool->handle()));
}

PointerFact PointerFacts::handle_types() const {
  if (chunk_.has_value()) return wide(chunk_->chunk->properties().requestedHandleTypes);
  const auto pool = allocation_->pool.lock();
  return wide(pool == nullptr ? 0 : pool->properties().handle_types);
}

PointerFact PointerFacts::block_id() const {
  if (chunk_.has_value()) return wide(chunk_->chunk->id());
  if (block_.has_value()) return wide(block_->chunk->id());
  return wide(first_id_of_host_memory + allocation_->buffer_id);
}

PointerFact PointerFacts::fact(CUpointer_attribute attribute) const {
  if (is_unknown()) return none(0);
  const bool is_chunk = chunk_.has_value();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return context();
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return memory_type();
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return device_pointer();
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host_pointer();
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return number(allocation_.has_value() && allocation_->sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return wide(is_chunk ? chunk_->buffer_id : allocation_->buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return number(!is_chunk && allocation_->kind == AllocationKind::Managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return number(static_cast<std::uint32_t>(home()));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return wide(is_chunk ? reservation_->first : allocation_->address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return wide(is_chunk ? reservation_->second : allocation_->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return number(1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return handle_types();
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return number(is_chunk ? chunk_->chunk->properties().allocFlags.gpuDirectRDMACapable != 0
                             : is_blocking());
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return access_flags();
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return pool();
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return wide(mapping().second);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return wide(mapping().first);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return block_id();
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return number(is_blocking() ? 1 : 0);
    default:
      return none(0);
  }
}

PointerFact PointerFacts::fact_or_default(CUpointer_attribute attribute) const {
  if (!is_unknown()) return fact(attribute);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return wide(address_);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return number(static_cast<std::uint32_t>(CU_DEVICE_INVALID));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return reservation_.has_value() ? wide(reservation_->first) : PointerFact{};
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return reservation_.has_value() ? wide(reservation_->second) : PointerFact{};
    default:
      return {.value = 0, .width = width_of(attribute)};
  }
}

std::optional<std::pair<CUdeviceptr, Size>> PointerFacts::address_range() const {
  if (is_unknown() || current_ == nullptr) return std::nullopt;
  if (!is_reached_by(current_->device().ordinal())) return std::nullopt;
  if (!chunk_.has_value()) return std::pair{allocation_->address, allocation_->size};
  const auto range = mapping();
  // For a mapping of host memory, the driver reports the size but not the beginning (measured).
  const bool is_of_host = chunk_->chunk->properties().location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  return std::pair{is_of_host ? CUdeviceptr{0} : range.first, range.second};
}

}  // namespace cuvmm::sim
