// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "base/invariant.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"
#include "vmm/reservation.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {

// A chunk and where it is mapped. It covers its whole size from the offset on.
struct MappedChunk {
  Size offset;
  ChunkRef chunk;
  AccessSet access;

  Stretch where() const { return {offset, chunk->size()}; }
};

// The chunks in which a block lies, in order, and its offset in the first of them, which may begin
// well before it.
struct ChunksBehind {
  Size offset = 0;
  std::vector<MappedChunk> chunks;
};

// The chunks behind a reservation, or a stretch of one, and the access to them. Offsets count from
// the mapping's first address. A mapping always records what the driver really has mapped: it is
// updated after each driver call, before the next one.
//
// Only MapPlan changes a mapping. Not synchronised; the owner must do that. The reservation must
// outlive it, and mappings of one reservation must not overlap.
class Mapping {
 public:
  static Mapping of(const Reservation& reservation);
  static Result<Mapping> of(const Reservation& reservation, Stretch stretch);

  Mapping(Mapping&&) noexcept = default;
  Mapping& operator=(Mapping&& other) noexcept;
  // Unmaps what is still mapped. The caller guarantees that nothing uses it.
  ~Mapping();

  const Driver& driver() const { return *driver_; }
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }
  Size granule() const { return granule_; }
  CUdeviceptr address_of(Size offset) const { return address_ + offset; }

  Size mapped_bytes() const { return mapped_bytes_; }
  // The mapped bytes that are not on the home device.
  Size far_bytes() const { return far_bytes_; }
  // Sets the home device. Call before anything is mapped.
  void be_at_home_on(int device) { home_ = device; }
  std::size_t chunk_count() const { return chunks_.size(); }

  // The chunk that covers `offset`; nullptr if there is none. Valid until the next change.
  const MappedChunk* find(Size offset) const;

  // All chunks that have bytes in the stretch, in address order.
  std::vector<MappedChunk> chunks_in(Stretch stretch) const;

  // Whether every byte of the stretch is mapped.
  bool covers(Stretch stretch) const;

  // Calls `visit(const MappedChunk&)` for all chunks, in address order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [offset, mapped] : chunks_) visit(mapped);
  }

  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  friend class MapPlan;
  using Chunks = std::map<Size, MappedChunk>;
  using Iterator = Chunks::const_iterator;

  Mapping(const Driver& driver, CUdeviceptr address, Size size, Size granule)
      : driver_(&driver), address_(address), size_(size), granule_(granule) {}

  // The first chunk that ends beyond `offset`.
  Iterator first_reaching(Size offset) const;
  // The same for a caller that proceeds in address order. `from` is its previous position.
  Iterator first_reaching(Size offset, Iterator from) const;

  // Record that a chunk is mapped at `offset`, or no longer is. `near` is the iterator that the
  // previous call returned if its offset was lower, otherwise first_reaching(offset).
  Iterator enter(Iterator near, Size offset, const ChunkRef& chunk, const AccessSet& access);
  Iterator remove(Iterator near, Size offset);

  Size far_bytes_of(const Chunk& chunk) const {
    return home_ >= 0 && residency(chunk.location(), home_) == Residency::Far ? chunk.size() : 0;
  }
  void unmap_all();

  const Driver* driver_;
  CUdeviceptr address_;
  Size size_;
  Size granule_;
  Chunks chunks_;  // by offset
  Size mapped_bytes_ = 0;
  Size far_bytes_ = 0;
  int home_ = -1;
};

}  // namespace cuvmm
