// SPDX-License-Identifier: Apache-2.0
#include "trace/program_chunk_walk.hpp"

#include <iterator>
#include <utility>

namespace cuvmm {

void ProgramChunkWalk::add(const TraceRecord& record) {
  const bool is_native = (record.flags & trace_flag::native) != 0;
  switch (record.event) {
    case TraceEvent::Create:
      if (is_native) create(record);
      break;
    case TraceEvent::Release:
      if (is_native) release(record);
      break;
    case TraceEvent::Map:
      if (is_native) map(record);
      break;
    case TraceEvent::Unmap:
      if (is_native) unmap(record.address, record.size);
      break;
    case TraceEvent::Import:
      if (const ChunkHandle chunk = named(record.other)) ++chunk->references;
      break;
    case TraceEvent::HandleRetain:
      retain(record);
      break;
    default:
      break;
  }
}

Size ProgramChunkWalk::bytes_on(std::int16_t device) const {
  const auto found = bytes_by_device_.find(device);
  return found != bytes_by_device_.end() ? found->second : 0;
}

std::optional<std::int16_t> ProgramChunkWalk::device_of(const TraceRecord& map) const {
  if ((map.flags & trace_flag::native) == 0) return {};
  const ChunkHandle chunk = named(map.other);
  return chunk != nullptr ? std::optional{chunk->device} : std::nullopt;
}

// A chunk that is known and has no memory on the device has come back to it. A chunk that is
// created elsewhere may come to the device later.
void ProgramChunkWalk::create(const TraceRecord& record) {
  if (record.result != 0) return;
  const bool is_elsewhere = (record.flags & trace_flag::on_host) != 0;
  ChunkHandle chunk = record.other != 0 ? named(record.other) : mapped_at(record.address);
  const bool comes_back = chunk != nullptr && !chunk->is_counted && !is_elsewhere;
  if (!comes_back) {
    if (record.other == 0) return;
    if (chunk != nullptr) drop_reference(*chunk);  // the end of the name was lost
    chunk = std::make_shared<Chunk>();
    names_[record.other] = chunk;
  }
  chunk->size = record.size;
  chunk->device = record.device;
  if (!is_elsewhere) count(*chunk);
}

// The program's own releases have no size; the others say that the chunk has left the device.
void ProgramChunkWalk::release(const TraceRecord& record) {
  const ChunkHandle chunk = record.other != 0 ? named(record.other) : mapped_at(record.address);
  if (chunk == nullptr) return;
  if (record.size != 0) return discount(*chunk);
  drop_reference(*chunk);
  if (chunk->references == 0) names_.erase(record.other);
}

void ProgramChunkWalk::retain(const TraceRecord& record) {
  if (record.result != 0 || record.other == 0) return;
  ChunkHandle chunk = mapped_at(record.address);
  if (chunk == nullptr) return;
  ++chunk->references;
  names_[record.other] = std::move(chunk);
}

void ProgramChunkWalk::map(const TraceRecord& record) {
  ChunkHandle chunk = named(record.other);
  if (chunk == nullptr) return;
  unmap(record.address, 1);  // in case the record of it was lost
  ++chunk->places;
  places_[record.address] = {record.size, std::move(chunk)};
}

void ProgramChunkWalk::unmap(std::uint64_t address, Size size) {
  auto at = places_.lower_bound(address);
  while (at != places_.end() && at->first - address < size) {
    Chunk& chunk = *at->second.chunk;
    --chunk.places;
    end_if_unused(chunk);
    at = places_.erase(at);
  }
}

ProgramChunkWalk::ChunkHandle ProgramChunkWalk::named(std::uint64_t name) const {
  const auto found = names_.find(name);
  return found != names_.end() ? found->second : nullptr;
}

ProgramChunkWalk::ChunkHandle ProgramChunkWalk::mapped_at(std::uint64_t address) const {
  const auto after = places_.upper_bound(address);
  if (after == places_.begin()) return nullptr;
  const auto& [begin, place] = *std::prev(after);
  return address - begin < place.size ? place.chunk : nullptr;
}

void ProgramChunkWalk::count(Chunk& chunk) {
  if (device_ && chunk.device != *device_) return;
  chunk.is_counted = true;
  bytes_ += chunk.size;
  bytes_by_device_[chunk.device] += chunk.size;
}

void ProgramChunkWalk::discount(Chunk& chunk) {
  if (!std::exchange(chunk.is_counted, false)) return;
  bytes_ -= chunk.size;
  bytes_by_device_[chunk.device] -= chunk.size;
}

void ProgramChunkWalk::drop_reference(Chunk& chunk) {
  if (chunk.references > 0) --chunk.references;
  end_if_unused(chunk);
}

void ProgramChunkWalk::end_if_unused(Chunk& chunk) {
  if (chunk.references == 0 && chunk.places == 0) discount(chunk);
}

}  // namespace cuvmm
