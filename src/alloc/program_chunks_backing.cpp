// SPDX-License-Identifier: Apache-2.0
// The driver's chunks behind the program's: taking them over for pauses, and exchanging them.
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "alloc/program_chunks.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

// Why no exportable chunk may take its place; nullptr if one may.
const char* why_not_exchangeable(const ProgramChunk& chunk) {
  if (chunk.is_imported()) return "another process created it";
  if (chunk.stays != nullptr) return chunk.stays;
  if (chunk.properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return "it is not on a device";
  return nullptr;
}

std::optional<CUmemAllocationProp> asked_if_changed(const ProgramChunk& chunk) {
  if (!chunk.has_added_type && !chunk.is_far()) return std::nullopt;
  CUmemAllocationProp asked = chunk.properties;
  if (chunk.has_added_type) {
    asked.requestedHandleTypes = ProgramChunk::without_file_descriptor(asked.requestedHandleTypes);
  }
  return asked;
}

}  // namespace

// The flag for RDMA and the type for file descriptors do not count: PyTorch sets them for all of
// its expandable segments. A chunk is brought in when the program asks for a dma-buf or a
// descriptor, and stays from then on.
bool ProgramChunk::may_be_spilled(const CUmemAllocationProp& properties) {
  constexpr decltype(properties.allocFlags) none{};
  auto flags = properties.allocFlags;
  flags.gpuDirectRDMACapable = 0;
  return properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         without_file_descriptor(properties.requestedHandleTypes) == CU_MEM_HANDLE_TYPE_NONE &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         std::memcmp(&flags, &none, sizeof none) == 0;
}

Result<bool> ProgramChunks::is_exportable_from(CUdeviceptr address) const {
  bool are_all = true;
  const Reading reading{lock_};
  for (const Place* place = find(address); place != nullptr; place = behind(*place)) {
    const ProgramChunk& chunk = *place->chunk;
    const bool is_whole = place->size == chunk.size;
    if (chunk.is_exportable() && is_whole) continue;
    are_all = false;
    if (const char* const why = is_whole ? why_not_exchangeable(chunk) : chunk.stays) {
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = "make the program's chunk exportable",
                   .subject = why,
                   .asked = chunk.size};
    }
  }
  return are_all;
}

std::optional<CUmemAllocationProp> ProgramChunks::asked_properties(Handle name) const {
  if (is_empty()) return std::nullopt;
  const Reading reading{lock_};
  const auto found = names_.find(name);
  return found != names_.end() ? asked_if_changed(*found->second.chunk) : std::nullopt;
}

std::optional<CUmemAllocationProp> ProgramChunks::asked_properties_at(CUdeviceptr address) const {
  if (is_empty()) return std::nullopt;
  const Reading reading{lock_};
  const Place* const place = find(address);
  return place != nullptr ? asked_if_changed(*place->chunk) : std::nullopt;
}

bool ProgramChunks::is_far(Handle name) const {
  if (is_empty()) return false;
  const Reading reading{lock_};
  const auto found = names_.find(name);
  return found != names_.end() && found->second.chunk->is_far();
}

std::vector<ProgramChunks::Place> ProgramChunks::far(Handle name) const {
  if (is_empty()) return {};
  const Reading reading{lock_};
  const auto found = names_.find(name);
  if (found == names_.end() || !found->second.chunk->is_far()) return {};
  const auto& chunk = found->second.chunk;
  if (chunk->mapped_at.empty()) return {Place{.chunk = chunk}};
  return {places_.at(chunk->mapped_at.front())};
}

std::vector<ProgramChunks::Place> ProgramChunks::far(CUdeviceptr address, Size size) const {
  std::vector<Place> far;
  if (is_empty()) return far;
  const Reading reading{lock_};
  for_each_in(places_, address, size, [&](const Place& place) {
    if (place.chunk->is_far()) far.push_back(place);
  });
  return far;
}

std::optional<CUdeviceptr> ProgramChunks::begin_of_far(CUdeviceptr address) const {
  const Reading reading{lock_};
  const Place* const place = find(address);
  if (place == nullptr || !place->chunk->is_far()) return std::nullopt;
  return place->address;
}

ChunkRef ProgramChunks::backing(const ProgramChunk& chunk) const {
  const Reading reading{lock_};
  return chunk.moved;
}

Result<ChunkRef> ProgramChunks::take_over(ProgramChunk& chunk, CUdeviceptr address) {
  Handle handle = 0;
  int surplus = 0;
  ChunkRef taken;
  {
    const Writing writing{lock_};
    if (chunk.moved) return chunk.moved;
    if (chunk.has_aliases) {
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = "refer to the program's chunk",
                   .subject = ProgramChunk::goes_by_several_handles};
    }
    if (chunk.references == 0) {
      TRY(driver_.check(
          driver_.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)),
          "refer to the program's chunk"));
    } else {
      handle = names_.at(chunk.name).handle;
      surplus = chunk.references - 1;
    }
    taken = adopt_charged(Chunk::adopt(driver_, handle, chunk.size, chunk.properties),
                          std::move(chunk.charge));
    chunk.moved = taken;
    chunk.is_taken_over = true;
  }
  for (; surplus > 0; --surplus) {
    const Chunk given_up = Chunk::adopt(driver_, handle, chunk.size, chunk.properties);
  }
  return taken;
}

void ProgramChunks::set_backing(CUdeviceptr address, bool is_mapped, const AccessSet& access) {
  const Writing writing{lock_};
  Place& place = places_.at(address);
  place.is_mapped = is_mapped;
  place.access_now = access;
}

// A chunk that the program has released, but still maps, has no handle.
void ProgramChunks::record(TraceEvent event, const ProgramChunk& chunk) const {
  if (!trace_is_on()) return;
  Handle name = 0;
  CUdeviceptr place = 0;
  {
    const Reading reading{lock_};
    if (chunk.references > 0) {
      name = chunk.name;
    } else if (!chunk.mapped_at.empty()) {
      place = chunk.mapped_at.front();
    } else {
      return;  // the program's own calls have ended it
    }
  }
  record_event({.event = event,
                .flags = trace_flag::native,
                .device = static_cast<std::int16_t>(chunk.properties.location.id),
                .detail = static_cast<std::uint32_t>(chunk.properties.location.id),
                .address = place,
                .size = chunk.size,
                .other = name});
}

void ProgramChunks::left(ProgramChunk& chunk) {
  // `moved` is empty if the chunk was away already, and its replacement was only partly mapped.
  if (chunk.moved && !chunk.is_far()) record(TraceEvent::Release, chunk);
  const Writing writing{lock_};
  chunk.moved = {};
}

void ProgramChunks::came_back(ProgramChunk& chunk, const ChunkRef& as) {
  const bool was_near = chunk.moved && !chunk.is_far();
  {
    const Writing writing{lock_};
    chunk.moved = as;
  }
  if (!was_near && !chunk.is_far()) record(TraceEvent::Create, chunk);
}

// The trace knows the chunk by the program's handle, which stays the same.
void ProgramChunks::exchanged(ProgramChunk& chunk, const ChunkRef& as,
                              const CUmemAllocationProp& properties) {
  if (chunk.is_far()) record(TraceEvent::Create, chunk);
  const Writing writing{lock_};
  chunk.moved = as;
  const bool adds_type = ProgramChunk::has_file_descriptor(properties) &&
                         !ProgramChunk::has_file_descriptor(chunk.properties);
  chunk.has_added_type |= adds_type;
  chunk.properties = properties;
}

}  // namespace cuvmm
