// SPDX-License-Identifier: Apache-2.0
#include "sim/ipc.hpp"

#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"
#include "sim/shared_file.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::uint64_t kind_of_handle = 0x6d656d7672766375;

// The layout of the 64 bytes of a CUipcMemHandle.
struct MemoryHandle {
  std::uint64_t kind = 0;
  SharedFile file;
  Size offset = 0;  // of the allocation in its chunk
  Size size = 0;
  std::uint64_t token = 0;  // unique to this allocation, and the same for each export of it
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

// Chunks of other processes that are mapped in this one.
class OpenedChunks {
 public:
  static OpenedChunks& get() {
    static constinit MadeOnce<OpenedChunks> opened;
    return opened.get();
  }

  CUresult open(const std::shared_ptr<Context>& context, const MemoryHandle& handle,
                CUdeviceptr* address) {
    const std::vector<int> accessors = context->accessors();
    const Holding holding{lock_};
    const Key key{handle.file.process, handle.file.inode, context->device().ordinal()};
    auto found = opened_.find(key);
    if (found == opened_.end()) {
      Opened fresh;
      if (const CUresult answer = map(accessors, handle, &fresh); answer != CUDA_SUCCESS) {
        return answer;
      }
      found = opened_.emplace(key, fresh).first;
    }
    Opened& chunk = found->second;
    if (handle.offset > chunk.size || handle.size > chunk.size - handle.offset) {
      drop_if_unused(found);
      return CUDA_ERROR_INVALID_VALUE;
    }
    *address = chunk.address + handle.offset;
    const bool again = space().change(*address, [](Allocation& known) { ++known.opens; });
    if (!again) {
      ++chunk.allocations;
      space().add({.address = *address,
                   .size = handle.size,
                   .kind = AllocationKind::IpcImport,
                   .device = context->device().ordinal(),
                   .context = context});
    }
    return CUDA_SUCCESS;
  }

  CUresult close(CUdeviceptr address) {
    const Holding holding{lock_};
    const auto known = opened_at(address);
    if (!known.has_value()) return CUDA_ERROR_INVALID_VALUE;
    if (known->opens > 1) {
      space().change(address, [](Allocation& allocation) { --allocation.opens; });
      return CUDA_SUCCESS;
    }
    space().take(address);
    for (auto chunk = opened_.begin(); chunk != opened_.end(); ++chunk) {
      if (address - chunk->second.address >= chunk->second.size) continue;
      --chunk->second.allocations;
      drop_if_unused(chunk);
      break;
    }
    return CUDA_SUCCESS;
  }

  // Returns the opened allocation that begins at this address.
  static std::optional<Allocation> opened_at(CUdeviceptr address) {
    auto known = space().allocation_at(address);
    if (!known.has_value() || known->address != address ||
        known->kind != AllocationKind::IpcImport) {
      return std::nullopt;
    }
    return known;
  }

 private:
  struct Key {
    std::int32_t process;
    std::uint64_t inode;
    int device;
    auto operator<=>(const Key&) const = default;
  };
  struct Opened {
    CUdeviceptr address = 0;
    Size size = 0;
    int allocations = 0;
  };
  using All = std::map<Key, Opened>;

  static CUresult map(const std::vector<int>& accessors, const MemoryHandle& handle,
                      Opened* opened) {
    Fd file = open_shared(handle.file);
    if (!file.is_open()) {  // measured: freed, or its process ended
      return is_alive(handle.file) ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_HANDLE;
    }
    auto chunk = Chunk::import(file.number());
    if (chunk == nullptr) return CUDA_ERROR_INVALID_VALUE;
    opened->size = chunk->size();
    opened->address = space().reserve(opened->size, settings().granularity, 0, Owner::Driver);
    if (opened->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult answer = space().map(opened->address, std::move(chunk), Owner::Driver);
    for (const int device : accessors) {
      if (answer != CUDA_SUCCESS) break;
      answer = space().set_access(opened->address, opened->size, device, Access::ReadWrite,
                                  Owner::Driver);
    }
    if (answer != CUDA_SUCCESS) unmap(*opened);
    return answer;
  }

  static void unmap(const Opened& opened) {
    space().unmap(opened.address, opened.size, Owner::Driver);
    space().free_reservation(opened.address, opened.size, Owner::Driver);
  }

  void drop_if_unused(All::iterator chunk) {
    if (chunk->second.allocations != 0) return;
    unmap(chunk->second);
    opened_.erase(chunk);
  }

  Lock lock_{LockOrder::SimIpc};  // guards the members below
  All opened_;
};

}  // namespace

CUresult ipc_handle_of(CUdeviceptr address, CUipcMemHandle* handle) {
  const auto allocation = space().allocation_at(address);
  if (!allocation.has_value() || allocation->kind != AllocationKind::Blocking) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto mapping = space().mapping_at(allocation->address);
  if (!mapping.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (!has_backing()) return lacking("cuIpcGetMemHandle", "needs VMM_SIM_BACKING=memory");
  const auto file = share(mapping->chunk);
  if (!file.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  const MemoryHandle made{kind_of_handle, *file, allocation->address - mapping->address,
                          allocation->size, secret_of_this_process() ^ allocation->buffer_id};
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult open_ipc_handle(const std::shared_ptr<Context>& context, const CUipcMemHandle& handle,
                         CUdeviceptr* address) {
  MemoryHandle read;
  std::memcpy(static_cast<void*>(&read), &handle, sizeof read);
  if (read.kind != kind_of_handle || read.size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (read.file.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // measured
  return OpenedChunks::get().open(context, read, address);
}

CUresult close_ipc_memory(CUdeviceptr address) {
  const auto known = OpenedChunks::opened_at(address);
  if (!known.has_value()) return CUDA_ERROR_INVALID_VALUE;
  const auto context = known->context.lock();
  if (known->opens == 1 && context != nullptr) context->wait_for_all_work();
  return OpenedChunks::get().close(address);
}

}  // namespace cuvmm::sim
