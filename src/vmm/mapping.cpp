// SPDX-License-Identifier: Apache-2.0
#include "vmm/mapping.hpp"

#include <utility>

#include "vmm/deferred_release.hpp"

namespace cuvmm {

Mapping Mapping::of(const Reservation& reservation) {
  return Mapping{reservation.driver(), reservation.address(), reservation.size(),
                 reservation.granule()};
}

Result<Mapping> Mapping::of(const Reservation& reservation, Stretch stretch) {
  constexpr const char* doing = "lay out a mapping";
  const Size granule = reservation.granule();
  if (stretch.size == 0) return Error::invalid(doing, "of no bytes");
  if (!stretch.fits(reservation.size())) {
    return Error::invalid(doing, "beyond the reservation", stretch.size);
  }
  if (!is_multiple(stretch.offset, granule) || !is_multiple(stretch.size, granule)) {
    return Error::invalid(doing, "not in granules", stretch.size);
  }
  return Mapping{reservation.driver(), reservation.address() + stretch.offset, stretch.size,
                 granule};
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  unmap_all();
  driver_ = other.driver_;
  address_ = other.address_;
  size_ = other.size_;
  granule_ = other.granule_;
  chunks_ = std::exchange(other.chunks_, {});
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  far_bytes_ = std::exchange(other.far_bytes_, 0);
  home_ = other.home_;
  return *this;
}

Mapping::~Mapping() {
  unmap_all();
}

void Mapping::unmap_all() {
  for (auto& [offset, mapped] : chunks_) {
    // The deferred call owns the reference, so that the chunk is not free while it is still mapped.
    release_or_defer(
        Deferred::Mapping,
        [driver = driver_, address = address_of(offset), size = mapped.chunk->size(),
         chunk = std::move(mapped.chunk)] { return driver->cuMemUnmap(address, size); });
  }
  chunks_.clear();
  mapped_bytes_ = far_bytes_ = 0;
}

Mapping::Iterator Mapping::first_reaching(Size offset) const {
  const Iterator above = chunks_.upper_bound(offset);
  if (above == chunks_.begin()) return above;
  const Iterator below = std::prev(above);
  return below->second.where().contains(offset) ? below : above;
}

Mapping::Iterator Mapping::first_reaching(Size offset, Iterator from) const {
  constexpr int near = 8;
  for (int step = 0; step < near; ++step, ++from) {
    if (from == chunks_.end() || from->second.where().end() > offset) return from;
  }
  return first_reaching(offset);
}

const MappedChunk* Mapping::find(Size offset) const {
  const Iterator place = first_reaching(offset);
  if (place == chunks_.end() || place->first > offset) return nullptr;
  return &place->second;
}

std::vector<MappedChunk> Mapping::chunks_in(Stretch stretch) const {
  std::vector<MappedChunk> found;
  if (!stretch.fits(size_)) return found;
  for (Iterator at = first_reaching(stretch.offset); at != chunks_.end(); ++at) {
    if (at->first >= stretch.end()) break;
    found.push_back(at->second);
  }
  return found;
}

bool Mapping::covers(Stretch stretch) const {
  if (!stretch.fits(size_)) return false;
  Size reached = stretch.offset;
  for (Iterator at = first_reaching(reached); reached < stretch.end(); ++at) {
    if (at == chunks_.end() || at->first > reached) return false;
    reached = at->second.where().end();
  }
  return true;
}

Mapping::Iterator Mapping::enter(Iterator near, Size offset, const ChunkRef& chunk,
                                 const AccessSet& access) {
  const Iterator next = first_reaching(offset, near);
  if (next != chunks_.end() && next->first == offset) {
    const auto entry = chunks_.erase(next, next);  // erases nothing, but makes `next` mutable
    entry->second.access = access;
    return next;
  }
  mapped_bytes_ += chunk->size();
  far_bytes_ += far_bytes_of(*chunk);
  return chunks_.emplace_hint(next, offset, MappedChunk{offset, chunk, access});
}

Mapping::Iterator Mapping::remove(Iterator near, Size offset) {
  const Iterator place = first_reaching(offset, near);
  mapped_bytes_ -= place->second.chunk->size();
  far_bytes_ -= far_bytes_of(*place->second.chunk);
  return chunks_.erase(place);
}

InvariantViolation Mapping::violation() const {
  const auto at = [](Size offset, const char* what) {
    return "mapping: the chunk at offset " + std::to_string(offset) + " " + what;
  };
  Size reached = 0;
  Size bytes = 0;
  Size far = 0;
  for (const auto& [offset, mapped] : chunks_) {
    if (mapped.offset != offset) return at(offset, "is kept under another offset");
    if (!mapped.chunk) return at(offset, "is missing");
    if (mapped.chunk->size() == 0) return at(offset, "has no bytes");
    if (!mapped.where().fits(size_)) return at(offset, "reaches beyond the mapping");
    if (!is_multiple(offset, granule_) || !is_multiple(mapped.chunk->size(), granule_)) {
      return at(offset, "is not in granules");
    }
    if (offset < reached) return at(offset, "overlaps the one before it");
    reached = mapped.where().end();
    bytes += mapped.chunk->size();
    far += far_bytes_of(*mapped.chunk);
  }
  if (far != far_bytes_) return "mapping: what lies elsewhere is counted wrongly";
  if (bytes != mapped_bytes_) {
    return "mapping: its chunks hold " + std::to_string(bytes) + " bytes, counted are " +
           std::to_string(mapped_bytes_);
  }
  return {};
}

}  // namespace cuvmm
