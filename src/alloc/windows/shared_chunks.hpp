// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include "alloc/record_pool.hpp"
#include "alloc/windows/shared_chunk.hpp"

namespace cuvmm {

// The chunks made for pieces of one size.
struct ChunkFormat {
  Format format;
  std::uint64_t seed = 0;
  std::uint64_t made = 0;                                 // so far
  std::size_t chunks = 0;                                 // now
  LinkedList<SharedChunk, &SharedChunk::of_format> open;  // with a slot to hand out
};

inline Residency SharedChunk::residency() const {
  return format->format.residency;
}

// How hard to search for a vacant place.
enum class Look : std::uint8_t {
  Lightly,  // beside pieces of the same size; elsewhere only if much memory is vacant
  Hard,     // anywhere
};

// All chunks that pieces share, and the room in them. Knows nothing of the driver or of addresses.
// Not synchronised.
class SharedChunks {
 public:
  struct VacantSlot {
    SharedChunk* chunk;
    Stretch where;
  };

  SharedChunks(Size granule, std::uint64_t seed) : granule_(granule), random_(seed) {}
  SharedChunks(const SharedChunks&) = delete;
  SharedChunks& operator=(const SharedChunks&) = delete;

  // Adds a chunk of one granule, for pieces of that format. It is empty: put() a piece into it or
  // remove() it.
  SharedChunk& add(ChunkRef chunk, const Format& format);
  ChunkRef remove(SharedChunk& chunk);

  void clear();

  std::optional<VacantSlot> find(const Format& format, Look look);
  VacantSlot first_slot(SharedChunk& fresh) const;

  // The block's piece takes its bytes in that chunk, which must be vacant, and is in use.
  void put(SharedChunk& chunk, WindowBlock& block);
  // Removes a piece that is not in use. Its bytes become vacant.
  void take_out(SharedChunk& chunk, WindowBlock& block);

  // Count the pieces in use: held by the program, or possibly touched by work.
  void use(SharedChunk& chunk) {
    if (chunk.in_use++ == 0) idle_.remove(chunk);
  }
  void end_use(SharedChunk& chunk) {
    if (--chunk.in_use == 0) idle_.push_back(chunk);
  }
  // The chunk that has been without a piece in use for longest.
  SharedChunk* oldest_idle() const { return idle_.first(); }
  static SharedChunk* idle_after(const SharedChunk& chunk) { return Idle::after(chunk); }

  // Call after a change to the pieces, or to anything that takes_blocks() depends on.
  void refile(SharedChunk& chunk);
  // Call after the memory behind it was replaced by a chunk of that residency.
  void set_residency(SharedChunk& chunk, Residency residency);

  // nullptr if that chunk is gone.
  static SharedChunk* if_still(SharedChunk* chunk, SharedChunk::Id id) {
    return chunk->id == id ? chunk : nullptr;
  }

  const std::vector<SharedChunk*>& all() const { return all_; }
  Size granule() const { return granule_; }
  Size physical_bytes() const { return all_.size() * granule_; }
  Size vacant_bytes() const { return vacant_bytes_; }
  Size far_bytes() const { return far_count_ * granule_; }  // of physical_bytes()
  // The far bytes that pieces take.
  Size far_bytes_taken() const { return far_bytes() - far_vacant_; }

  InvariantViolation violation() const;

 private:
  static constexpr std::size_t classes = 64;  // of vacancies by size, all of the same width
  static constexpr std::size_t few = 16;      // chunks to examine while memory is plentiful
  using Idle = LinkedList<SharedChunk, &SharedChunk::of_idle>;

  struct FormatHash {
    std::size_t operator()(const Format& format) const noexcept {
      return static_cast<std::size_t>(format.size * 8 + static_cast<Size>(format.residency) * 4 +
                                      static_cast<Size>(format.cut));
    }
  };

  ChunkFormat& record_of(const Format& format);
  std::size_t class_of(Size vacancy) const {
    return vacancy == 0 ? 0 : static_cast<std::size_t>(vacancy * (classes - 1) / granule_) + 1;
  }
  std::optional<Stretch> vacant_slot(const SharedChunk& chunk) const;
  std::optional<Stretch> vacant_slot(const SharedChunk& chunk, const Format& format);
  std::optional<VacantSlot> find_slot(const Format& format, std::size_t most_chunks);
  std::optional<VacantSlot> find_any(const Format& format) const;
  struct Vacancies {
    Size bytes = 0;
    Size largest = 0;
  };
  static Vacancies vacancies_of(const SharedChunk& chunk);
  SharedChunk::Id next_id();
  InvariantViolation violation_of(const SharedChunk& chunk) const;
  InvariantViolation violation_of_pieces(const SharedChunk& chunk) const;

  const Size granule_;
  RandomNumbers random_;
  RecordPool<SharedChunk> records_;
  SharedChunk::Id last_id_ = 0;
  std::vector<SharedChunk*> all_;
  std::unordered_map<Format, std::unique_ptr<ChunkFormat>, FormatHash> formats_;
  std::array<LinkedList<SharedChunk, &SharedChunk::of_class>, classes + 1> by_vacancy_;
  Idle idle_;
  Size vacant_bytes_ = 0;  // in chunks that take blocks
  std::size_t far_count_ = 0;
  Size far_vacant_ = 0;
};

}  // namespace cuvmm
