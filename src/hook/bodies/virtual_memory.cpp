// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory. The driver serves it; cuvmm records its chunks and mappings
// (alloc/program_chunks.hpp).
//
// In addresses that cuvmm has reserved, the program has no mapping, and natively there would be
// other memory or none, so the answer is INVALID_VALUE (measured for cuMemAlloc memory). The driver
// would change what backs cuvmm's memory.
#include <vector>

#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

using Handle = CUmemGenericAllocationHandle;

// The books of the program's chunks; nullptr if there are none.
template <Call call>
ProgramChunks* chunks_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? &serving->program_chunks : nullptr;
}

// The driver's handle of what the program calls `name`.
template <Call call>
Handle handle_of(const Forward<call>& forward, Handle name) {
  const ProgramChunks* const chunks = chunks_of(forward);
  return chunks != nullptr ? chunks->handle_of(name) : name;
}

// For what only memory of the device itself can do: a spilled chunk is not there.
template <Call call>
CUresult refuse_far(const Forward<call>& forward) {
  const CUresult refused = forward.announce();
  return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_OUT_OF_MEMORY;
}

template <Call call, class... Arguments>
CUresult outside_ours(const Forward<call>& forward, CUdeviceptr address, size_t size,
                      Arguments... arguments) {
  if (!Engine::has_reserved(address, size)) return forward(arguments...);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUVMM_HOOK(cuMemCreate, Handle* chunk, size_t size, const CUmemAllocationProp* properties,
           unsigned long long flags) {
  Serving* const serving = forward.engine().serving();
  if (serving == nullptr || chunk == nullptr || properties == nullptr) {
    return forward(chunk, size, properties, flags);
  }
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  return serving->program_creation.create(chunk, size, *properties, [&](Handle* made) {
    return forward.announced_once(made, size, properties, flags);
  });
}

CUVMM_HOOK(cuMemImportFromShareableHandle, Handle* chunk, void* shared,
           CUmemAllocationHandleType type) {
  const CUresult answer = forward(chunk, shared, type);
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks != nullptr && answer == CUDA_SUCCESS) *chunk = chunks->imported(*chunk);
  return answer;
}

// What another handle type would refer to is not there: the chunk lies elsewhere, or is exportable
// only because cuvmm has made it so.
CUVMM_HOOK(cuMemExportToShareableHandle, void* shared, Handle chunk, CUmemAllocationHandleType type,
           unsigned long long flags) {
  ProgramChunks* const chunks = chunks_of(forward);
  const auto asked = chunks != nullptr ? chunks->asked_properties(chunk) : std::nullopt;
  const auto has = [](const CUmemAllocationProp& properties, CUmemAllocationHandleType wanted) {
    return (static_cast<unsigned>(properties.requestedHandleTypes) &
            static_cast<unsigned>(wanted)) != 0;
  };
  if (asked && !has(*asked, type)) {
    const CUresult refused = forward.announce();
    return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult answer = forward(shared, handle_of(forward, chunk), type, flags);
  if (chunks != nullptr && answer == CUDA_SUCCESS) {
    chunks->pin(chunk, pin::exported);
  }
  return answer;
}

// For memory of ours it refuses, as the driver does for its own memory, so that libraries take the
// same path.
CUVMM_HOOK(cuMemRetainAllocationHandle, Handle* chunk, void* pointer) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return forward(chunk, pointer);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (forward.engine().serving()->memory.find(address)) return CUDA_ERROR_INVALID_VALUE;
  if (chunk == nullptr) return forward.announced(chunk, pointer);
  if (const auto moved = chunks->retain(address)) {
    *chunk = *moved;
    return CUDA_SUCCESS;
  }
  const CUresult answer = forward.announced(chunk, pointer);
  if (answer == CUDA_SUCCESS) *chunk = chunks->retained(*chunk, address);
  return answer;
}

CUVMM_HOOK(cuMemRelease, Handle chunk) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return forward(chunk);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const auto released = chunks->release(chunk);
  if (!released.is_for_driver) return CUDA_SUCCESS;
  const CUresult answer = forward.announced(released.handle);
  if (answer != CUDA_SUCCESS) chunks->restore(released);
  return answer;
}

CUVMM_HOOK(cuMemMap, CUdeviceptr address, size_t size, size_t offset, Handle chunk,
           unsigned long long flags) {
  const CUresult answer =
      outside_ours(forward, address, size, address, size, offset, handle_of(forward, chunk), flags);
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks != nullptr && answer == CUDA_SUCCESS) chunks->mapped(address, size, chunk, offset);
  return answer;
}

CUVMM_HOOK(cuMemUnmap, CUdeviceptr address, size_t size) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return outside_ours(forward, address, size, address, size);
  auto places = chunks->unmap(address, size);
  const CUresult answer = outside_ours(forward, address, size, address, size);
  if (answer != CUDA_SUCCESS) chunks->restore(std::move(places));
  return answer;
}

CUVMM_HOOK(cuMemSetAccess, CUdeviceptr address, size_t size, const CUmemAccessDesc* lines,
           size_t count) {
  const CUresult answer = outside_ours(forward, address, size, address, size, lines, count);
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks != nullptr && answer == CUDA_SUCCESS) {
    chunks->set_access(address, size, {lines, count});
  }
  return answer;
}

CUVMM_HOOK(cuMemAddressFree, CUdeviceptr address, size_t size) {
  return outside_ours(forward, address, size, address, size);
}

// Tiles of an array keep the chunk, and nothing tells where they lie in it.
CUVMM_HOOK(cuMemMapArrayAsync, CUarrayMapInfo* tiles, unsigned count, CUstream stream) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr || chunks->is_empty() || tiles == nullptr) {
    return forward(tiles, count, stream);
  }
  std::vector<CUarrayMapInfo> translated{tiles, tiles + count};
  for (CUarrayMapInfo& tile : translated) {
    if (tile.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) continue;
    if (chunks->is_far(tile.memHandle.memHandle)) return refuse_far(forward);
    tile.memHandle.memHandle = chunks->handle_of(tile.memHandle.memHandle);
  }
  const CUresult answer = forward(translated.data(), count, stream);
  for (unsigned i = 0; answer == CUDA_SUCCESS && i < count; ++i) {
    if (tiles[i].memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) continue;
    chunks->pin_for_array(tiles[i].memHandle.memHandle);
  }
  return answer;
}

// The program may know a chunk by the number that the driver has given the object, if that chunk
// has moved. Another object has another number, while the first ones exist.
CUVMM_HOOK(cuMulticastCreate, Handle* object, const CUmulticastObjectProp* properties) {
  CUresult answer = forward(object, properties);
  const ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return answer;
  std::vector<Handle> taken;
  while (answer == CUDA_SUCCESS && chunks->is_taken(*object)) {
    taken.push_back(*object);
    answer = forward.announced(object, properties);
  }
  for (const Handle one : taken) forward.engine().driver().cuMemRelease(one);
  return answer;
}

// The program may have imported the object, and know it by a number that is not the driver's.
CUVMM_HOOK(cuMulticastAddDevice, Handle object, CUdevice device) {
  return forward(handle_of(forward, object), device);
}

CUVMM_HOOK(cuMulticastUnbind, Handle object, CUdevice device, size_t offset, size_t size) {
  return forward(handle_of(forward, object), device, offset, size);
}

// The object keeps the chunk, and other devices reach it through the object.
CUVMM_HOOK(cuMulticastBindMem, Handle object, size_t offset, Handle chunk, size_t chunk_offset,
           size_t size, unsigned long long flags) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks != nullptr && chunks->is_far(chunk)) return refuse_far(forward);
  const CUresult answer = forward(handle_of(forward, object), offset, handle_of(forward, chunk),
                                  chunk_offset, size, flags);
  if (chunks != nullptr && answer == CUDA_SUCCESS) {
    chunks->pin(chunk, pin::multicast);
  }
  return answer;
}

// While the process is paused, the driver does not know the chunk. The properties are those that
// the program asked for, wherever the chunk lies.
CUVMM_HOOK(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp* properties, Handle chunk) {
  const CallBarrier::Pass pass{forward.engine().calls(),
                               Call::cuMemGetAllocationPropertiesFromHandle};
  const CUresult answer = forward(properties, handle_of(forward, chunk));
  const ProgramChunks* const chunks = chunks_of(forward);
  if (answer != CUDA_SUCCESS || chunks == nullptr) return answer;
  if (const auto asked = chunks->asked_properties(chunk)) *properties = *asked;
  return answer;
}

CUVMM_HOOK(cuMemGetAccess, unsigned long long* flags, const CUmemLocation* location,
           CUdeviceptr address) {
  const CallBarrier::Pass pass{forward.engine().calls(), Call::cuMemGetAccess};
  return forward(flags, location, address);
}

}  // namespace cuvmm::hook
