// SPDX-License-Identifier: Apache-2.0
#include "alloc/program_chunks.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/eviction_set.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

// A driver's handles are addresses or small numbers; these are neither.
constexpr CUmemGenericAllocationHandle first_invented = 0xC0DE'0000'0000'0000;

constexpr const char* backs_an_array = "it backs a sparse array";
constexpr const char* is_used_by_the_host = "the host may access it";
constexpr const char* is_mapped_in_part = "the program has mapped a part of it";

Access access_of(CUmemAccess_flags flags) {
  if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return Access::ReadWrite;
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? Access::Read : Access::None;
}

}  // namespace

void ProgramChunks::count() {
  count_.store(names_.size() + places_.size(), std::memory_order_release);
}

// Whether the number names a chunk that the driver now knows by another one.
bool ProgramChunks::is_another(Handle handle) const {
  const auto found = names_.find(handle);
  return found != names_.end() && found->second.chunk->is_taken_over;
}

bool ProgramChunks::is_taken(Handle handle) const {
  if (is_empty()) return false;
  const Reading reading{lock_};
  return is_another(handle);
}

// If the driver has just handed out a name that is still known, the chunk of that name has ended
// without our noticing. The program must not know the handle of spilled memory: the handle outlives
// the program's chunk in the store, and the program might release it once more.
ProgramChunks::Handle ProgramChunks::add_name(const std::shared_ptr<ProgramChunk>& chunk,
                                              Handle handle,
                                              std::shared_ptr<ProgramChunk>& forgotten) {
  const bool is_hidden = chunk->is_far() || is_another(handle);
  chunk->name = is_hidden ? first_invented + ++last_invented_ : handle;
  Named& named = names_[chunk->name];
  forgotten = std::move(named.chunk);
  named = {chunk, handle, 1};
  count();
  return chunk->name;
}

std::shared_ptr<ProgramChunk> ProgramChunks::make(Size size,
                                                  const CUmemAllocationProp& properties) {
  auto chunk = std::make_shared<ProgramChunk>();
  chunk->id = last_id_.fetch_add(1, std::memory_order_relaxed) + 1;
  chunk->size = size;
  chunk->properties = properties;
  return chunk;
}

ProgramChunks::Handle ProgramChunks::created(Handle handle, Size size,
                                             const CUmemAllocationProp& properties,
                                             NativeCharge charge) {
  const auto chunk = make(size, properties);
  chunk->charge = std::move(charge);
  std::shared_ptr<ProgramChunk> forgotten;  // destroyed without the lock
  const Writing writing{lock_};
  return add_name(chunk, handle, forgotten);
}

ProgramChunks::Handle ProgramChunks::spilled(const ChunkRef& as, Size size,
                                             const CUmemAllocationProp& properties) {
  const auto chunk = make(size, properties);
  chunk->moved = as;
  chunk->is_taken_over = true;
  std::shared_ptr<ProgramChunk> forgotten;
  const Writing writing{lock_};
  return add_name(chunk, as->handle(), forgotten);
}

ProgramChunks::Handle ProgramChunks::imported(Handle handle) {
  std::shared_ptr<ProgramChunk> forgotten;
  const Writing writing{lock_};
  const auto found = names_.find(handle);
  if (found != names_.end() &&
      !found->second.chunk->is_taken_over) {  // the process's own, or known
    ++found->second.references;
    ++found->second.chunk->references;
    return handle;
  }
  const auto chunk = std::make_shared<ProgramChunk>();
  chunk->id = last_id_.fetch_add(1, std::memory_order_relaxed) + 1;
  chunk->stays = reason_to_stay(pin::exported);
  chunk->is_shared = true;
  return add_name(chunk, handle, forgotten);
}

std::optional<ProgramChunks::Handle> ProgramChunks::retain(CUdeviceptr address) {
  if (is_empty()) return std::nullopt;
  std::shared_ptr<ProgramChunk> forgotten;
  const Writing writing{lock_};
  const Place* const place = find(address);
  // The driver may have ended while the chunk was away.
  if (place == nullptr || !place->chunk->moved) return std::nullopt;
  ProgramChunk& chunk = *place->chunk;
  if (++chunk.references == 1) return add_name(place->chunk, chunk.moved->handle(), forgotten);
  ++names_.at(chunk.name).references;
  return chunk.name;
}

ProgramChunks::Handle ProgramChunks::retained(Handle handle, CUdeviceptr address) {
  if (is_empty()) return handle;
  std::shared_ptr<ProgramChunk> forgotten;
  std::optional<Chunk> surplus;  // released without the lock
  const Writing writing{lock_};
  const Place* const place = find(address);
  if (place == nullptr) return handle;
  ProgramChunk& chunk = *place->chunk;
  // Taken over by another thread since this one asked the driver, which counts one reference now.
  if (chunk.is_taken_over) {
    surplus.emplace(Chunk::adopt(driver_, handle, chunk.size, chunk.properties));
  }
  if (++chunk.references == 1) return add_name(place->chunk, handle, forgotten);
  const auto found = names_.find(chunk.name);
  if (found != names_.end() && found->second.handle == handle) {
    ++found->second.references;
    return chunk.name;
  }
  chunk.has_aliases = true;
  chunk.stays = ProgramChunk::goes_by_several_handles;
  return add_name(place->chunk, handle, forgotten);
}

// Visits each chunk once: by its name, or if it has none, at the first place where it is mapped.
template <class Visit>
void ProgramChunks::for_each(Visit visit) const {
  for (const auto& [name, named] : names_) {
    if (named.chunk->name == name) visit(named.chunk);
  }
  for (const auto& [address, place] : places_) {
    const ProgramChunk& chunk = *place.chunk;
    if (chunk.references == 0 && chunk.mapped_at.front() == address) visit(place.chunk);
  }
}

// 0 for a handle that only cuvmm references: the program must not release it.
ProgramChunks::Handle ProgramChunks::unknown(Handle name) {
  return has_own_reference(name) ? 0 : name;
}

ProgramChunks::Handle ProgramChunks::handle_of(Handle name) const {
  if (is_empty()) return unknown(name);
  const Reading reading{lock_};
  const auto found = names_.find(name);
  if (found == names_.end()) return unknown(name);
  const ProgramChunk& chunk = *found->second.chunk;
  return chunk.moved ? chunk.moved->handle() : found->second.handle;
}

ProgramChunks::Release ProgramChunks::release(Handle name) {
  Release release{.chunk = nullptr, .name = name, .handle = 0};
  const Writing writing{lock_};
  const auto found = names_.find(name);
  if (found == names_.end()) {
    release.handle = unknown(name);
    return release;
  }
  release.chunk = found->second.chunk;
  release.handle = found->second.handle;
  release.is_for_driver = !release.chunk->is_taken_over;
  --release.chunk->references;
  if (--found->second.references == 0) {
    names_.erase(found);
    rename_if_gone(*release.chunk);
  }
  count();
  return release;
}

// If the handle that names the chunk has been released, another one that the program still has
// names it.
void ProgramChunks::rename_if_gone(ProgramChunk& chunk) {
  if (chunk.references == 0 || names_.contains(chunk.name)) return;
  for (const auto& [name, named] : names_) {
    if (named.chunk.get() == &chunk) chunk.name = name;
  }
}

void ProgramChunks::restore(const Release& release) {
  if (release.chunk == nullptr) return;
  const Writing writing{lock_};
  ++release.chunk->references;
  const auto [named, is_new] =
      names_.try_emplace(release.name, Named{release.chunk, release.handle});
  if (!is_new) ++named->second.references;
  count();
}

const ProgramChunks::Place* ProgramChunks::find(CUdeviceptr address) const {
  auto found = places_.upper_bound(address);
  if (found == places_.begin()) return nullptr;
  --found;
  return found->second.contains(address) ? &found->second : nullptr;
}

// The mapping that begins where this one ends; nullptr if there is none.
const ProgramChunks::Place* ProgramChunks::behind(const Place& place) const {
  const auto next = places_.find(place.address + place.size);
  return next != places_.end() ? &next->second : nullptr;
}

bool ProgramChunks::contains(CUdeviceptr address) const {
  if (is_empty()) return false;
  const Reading reading{lock_};
  return find(address) != nullptr;
}

void ProgramChunks::mapped(CUdeviceptr address, Size size, Handle name, Size offset) {
  Place forgotten;  // destroyed without the lock
  const Writing writing{lock_};
  const auto found = names_.find(name);
  if (found == names_.end()) return;  // a multicast object
  const std::shared_ptr<ProgramChunk>& chunk = found->second.chunk;
  if (chunk->is_imported()) chunk->size = std::max(chunk->size, offset + size);
  if (offset != 0 || size != chunk->size) chunk->stays = is_mapped_in_part;
  forgotten =
      std::exchange(places_[address], Place{.address = address, .size = size, .chunk = chunk});
  if (forgotten.chunk != nullptr) std::erase(forgotten.chunk->mapped_at, address);
  chunk->mapped_at.push_back(address);
  count();
}

std::vector<ProgramChunks::Place> ProgramChunks::unmap(CUdeviceptr address, Size size) {
  std::vector<Place> removed;
  if (is_empty()) return removed;
  const Writing writing{lock_};
  const auto begin = places_.lower_bound(address);
  auto end = begin;
  for (; end != places_.end() && end->first - address < size; ++end) {
    std::erase(end->second.chunk->mapped_at, end->first);
    removed.push_back(std::move(end->second));
  }
  places_.erase(begin, end);
  count();
  return removed;
}

void ProgramChunks::restore(std::vector<Place> places) {
  const Writing writing{lock_};
  for (Place& place : places) {
    const CUdeviceptr address = place.address;
    place.chunk->mapped_at.push_back(address);
    places_.insert_or_assign(address, std::move(place));
  }
  count();
}

void ProgramChunks::set_access(CUdeviceptr address, Size size,
                               std::span<const CUmemAccessDesc> lines) {
  if (is_empty()) return;
  const Writing writing{lock_};
  bool continues = false;
  for_each_in(places_, address, size, [&](Place& place) {
    for (const CUmemAccessDesc& line : lines) {
      const Access access = access_of(line.flags);
      if (line.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        place.access = place.access.with(line.location.id, access);
      } else if (access != Access::None) {
        place.chunk->stays = is_used_by_the_host;
      }
    }
    place.access_now = place.access;
    place.continues = std::exchange(continues, true);
  });
}

void ProgramChunk::pin(std::uint8_t why) {
  stays = reason_to_stay(why);
  is_shared |= (why & held_by_others) != 0;
}

void ProgramChunks::pin(Handle name, std::uint8_t why) {
  if (is_empty()) return;
  const Writing writing{lock_};
  const auto found = names_.find(name);
  if (found != names_.end()) found->second.chunk->pin(why);
}

void ProgramChunks::pin(CUdeviceptr address, Size size, std::uint8_t why) {
  if (is_empty()) return;
  const Writing writing{lock_};
  for_each_in(places_, address, size, [&](Place& place) { place.chunk->pin(why); });
}

void ProgramChunks::pin_for_array(Handle name) {
  if (is_empty()) return;
  const Writing writing{lock_};
  const auto found = names_.find(name);
  if (found != names_.end()) found->second.chunk->stays = backs_an_array;
}

bool ProgramChunks::are_shared() const {
  if (is_empty()) return false;
  const Reading reading{lock_};
  bool found = false;
  for_each([&](const auto& chunk) { found |= chunk->is_shared; });
  return found;
}

// Only the process that created an imported chunk knows where it lies, so this infers the device
// from the access to its first mapping.
int ProgramChunks::device_of(const ProgramChunk& chunk) const {
  const CUmemLocation& where = chunk.properties.location;
  if (!chunk.is_imported()) return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : -1;
  for (int device = 0; device < AccessSet::most_devices && !chunk.mapped_at.empty(); ++device) {
    const Place& place = places_.at(chunk.mapped_at.front());
    if (place.access.of_device(device) != Access::None) return device;
  }
  return -1;
}

std::vector<std::shared_ptr<ProgramChunk>> ProgramChunks::chunks_on(int device) const {
  std::vector<std::shared_ptr<ProgramChunk>> chunks;
  const Reading reading{lock_};
  for_each([&](const auto& chunk) {
    if (device_of(*chunk) == device) chunks.push_back(chunk);
  });
  return chunks;
}

AccessSet ProgramChunks::devices() const {
  AccessSet devices;
  const Reading reading{lock_};
  for_each([&](const auto& chunk) { devices = devices.with(device_of(*chunk)); });
  return devices;
}

Size ProgramChunks::bytes_on_devices() const {
  Size bytes = 0;
  const Reading reading{lock_};
  for_each([&](const auto& chunk) {
    const bool is_on_host = chunk->moved && chunk->moved->location().is_host();
    const bool may_leave = chunk->stays == nullptr && !is_on_host;
    if (may_leave && device_of(*chunk) >= 0) bytes += chunk->size;
  });
  return bytes;
}

// Nothing says where the program's blocks begin in such memory, so each mapping counts as one.
void ProgramChunks::list_held(int device, std::vector<HeldChunk>& held) const {
  if (is_empty()) return;
  const Reading reading{lock_};
  for (const auto& [address, place] : places_) {
    const ProgramChunk& chunk = *place.chunk;
    const bool may_move = chunk.stays == nullptr && !chunk.has_aliases && place.is_mapped &&
                          ProgramChunk::may_be_spilled(chunk.properties);
    if (!may_move || chunk.properties.location.id != device || !place.is_open_to(device)) continue;
    held.push_back({.address = address,
                    .size = place.size,
                    .where = chunk.lies_on(device),
                    .chunk = chunk.key(),
                    .blocks = address,
                    .blocks_size = place.size,
                    .holder = chunk.key()});
  }
}

Size ProgramChunks::near_bytes(int device) const {
  Size bytes = 0;
  if (is_empty()) return bytes;
  const Reading reading{lock_};
  for_each([&](const auto& chunk) {
    if (device_of(*chunk) == device && !chunk->is_far()) bytes += chunk->size;
  });
  return bytes;
}

ProgramChunks::Created ProgramChunks::created_for(int device) const {
  Created created;
  if (is_empty()) return created;
  const Reading reading{lock_};
  for_each([&](const auto& chunk) {
    if (chunk->is_imported() || device_of(*chunk) != device) return;
    const bool is_away = chunk->is_taken_over && !chunk->moved;
    created.bytes += chunk->size;
    if (!is_away && !chunk->is_far()) created.on_device += chunk->size;
  });
  return created;
}

std::vector<ProgramChunks::Place> ProgramChunks::places_of(const ProgramChunk& chunk) const {
  const Reading reading{lock_};
  std::vector<Place> places;
  for (const CUdeviceptr address : chunk.mapped_at) places.push_back(places_.at(address));
  return places;
}

std::vector<ProgramChunks::Place> ProgramChunks::run_from(CUdeviceptr address) const {
  const Reading reading{lock_};
  std::vector<Place> run;
  for (const Place* place = find(address); place != nullptr; place = behind(*place)) {
    run.push_back(*place);
  }
  return run;
}

}  // namespace cuvmm
