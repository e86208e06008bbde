// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory. The driver serves it; cuvmm records its chunks and mappings
// (alloc/program_chunks.hpp).
//
// A call that names addresses reserved by cuvmm returns INVALID_VALUE: the program has no mapping
// there, and natively they would hold other memory or none (measured for cuMemAlloc memory). If the
// call were forwarded, the driver would change the backing of cuvmm's memory.
#include <vector>

#include "hook/bring_in.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

using Handle = CUmemGenericAllocationHandle;

// The record of the program's chunks; nullptr if cuvmm does not serve memory.
template <Call call>
ProgramChunks* chunks_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? &serving->program_chunks : nullptr;
}

// The driver's handle for the chunk or object that the program knows as `name`.
template <Call call>
Handle handle_of(const Forward<call>& forward, Handle name) {
  const ProgramChunks* const chunks = chunks_of(forward);
  return chunks != nullptr ? chunks->handle_of(name) : name;
}

// Selects one chunk, for bring_in().
auto chunk_itself(Handle name) {
  return [name](const ProgramChunks& chunks) { return chunks.far(name); };
}

// Whether it is memory that cuvmm serves, or once served there and keeps for later.
template <Call call>
bool is_ours(const Forward<call>& forward, CUdeviceptr address) {
  return Engine::has_reserved(address, 1) || forward.engine().serving()->memory.find(address);
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
  // The driver refuses any flags.
  if (serving == nullptr || chunk == nullptr || properties == nullptr || flags != 0) {
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

// Refuses a handle type that the program did not request on creation. The driver would accept it if
// cuvmm has made the chunk exportable.
CUVMM_HOOK(cuMemExportToShareableHandle, void* shared, Handle chunk, CUmemAllocationHandleType type,
           unsigned long long flags) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return forward(shared, chunk, type, flags);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const auto has = [](const CUmemAllocationProp& properties, CUmemAllocationHandleType wanted) {
    return (static_cast<unsigned>(properties.requestedHandleTypes) &
            static_cast<unsigned>(wanted)) != 0;
  };
  const auto asked = chunks->asked_properties(chunk);
  if (asked && !has(*asked, type)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = bring_in(forward, chunk_itself(chunk)); refused != CUDA_SUCCESS) {
    return refused;
  }
  const CUresult answer = forward.announced(shared, chunks->handle_of(chunk), type, flags);
  if (answer == CUDA_SUCCESS) chunks->pin(chunk, pin::exported);
  return answer;
}

// Refuses memory of ours, as the driver refuses its own, so that libraries take the same path as
// natively.
CUVMM_HOOK(cuMemRetainAllocationHandle, Handle* chunk, void* pointer) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return forward(chunk, pointer);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (is_ours(forward, address)) return CUDA_ERROR_INVALID_VALUE;
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

// Pins the chunks: array tiles keep references to them, and cuvmm cannot tell where in a chunk a
// tile lies.
CUVMM_HOOK(cuMemMapArrayAsync, CUarrayMapInfo* tiles, unsigned count, CUstream stream) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr || chunks->is_empty() || tiles == nullptr) {
    return forward(tiles, count, stream);
  }
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  std::vector<CUarrayMapInfo> translated{tiles, tiles + count};
  const auto for_each_chunk = [&](const auto& visit) {
    for (CUarrayMapInfo& tile : translated) {
      if (tile.memHandleType == CU_MEM_HANDLE_TYPE_GENERIC) visit(tile.memHandle.memHandle);
    }
  };
  const auto spilled = [&](const ProgramChunks& books) {
    std::vector<ProgramChunks::Place> far;
    for_each_chunk([&](Handle chunk) {
      for (auto& place : books.far(chunk)) far.push_back(std::move(place));
    });
    return far;
  };
  if (const CUresult refused = bring_in(forward, spilled); refused != CUDA_SUCCESS) return refused;
  for_each_chunk([&](Handle& chunk) { chunk = chunks->handle_of(chunk); });
  const CUresult answer = forward.announced(translated.data(), count, stream);
  for (unsigned i = 0; answer == CUDA_SUCCESS && i < count; ++i) {
    if (tiles[i].memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) continue;
    chunks->pin_for_array(tiles[i].memHandle.memHandle);
  }
  return answer;
}

// The driver may give the new object a handle by which the program still knows a chunk that has
// moved. In that case, creates another object while the first still exists, which gets another
// handle.
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

// The program may have imported the object, and know it by a handle that is not the driver's.
CUVMM_HOOK(cuMulticastAddDevice, Handle object, CUdevice device) {
  return forward(handle_of(forward, object), device);
}

CUVMM_HOOK(cuMulticastUnbind, Handle object, CUdevice device, size_t offset, size_t size) {
  return forward(handle_of(forward, object), device, offset, size);
}

// The multicast object keeps a reference to the chunk, and other devices reach the chunk through
// it.
CUVMM_HOOK(cuMulticastBindMem, Handle object, size_t offset, Handle chunk, size_t chunk_offset,
           size_t size, unsigned long long flags) {
  ProgramChunks* const chunks = chunks_of(forward);
  if (chunks == nullptr) return forward(object, offset, chunk, chunk_offset, size, flags);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = bring_in(forward, chunk_itself(chunk)); refused != CUDA_SUCCESS) {
    return refused;
  }
  const CUresult answer = forward.announced(chunks->handle_of(object), offset,
                                            chunks->handle_of(chunk), chunk_offset, size, flags);
  if (answer == CUDA_SUCCESS) chunks->pin(chunk, pin::multicast);
  return answer;
}

// Waits for the end of a pause, during which the driver does not know the chunk. Returns the
// properties that the program asked for, wherever the chunk lies.
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
  const Serving* const serving = forward.engine().serving();
  if (serving == nullptr || flags == nullptr || location == nullptr || !is_ours(forward, address)) {
    return forward(flags, location, address);
  }
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (!serving->memory.find(address)) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // what the driver says of its allocations (measured)
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::hook
