// SPDX-License-Identifier: Apache-2.0
// PyTorch's own allocator (CUDACachingAllocator), by the rules of versions 2.1 to 2.9 with default
// settings. There are two ways in which it gets memory from the driver, each a subclass:
// CachingModel (the default) and ExpandableModel (expandable_segments:True).
#pragma once

#include <set>
#include <unordered_map>

#include "alloc/record_pool.hpp"
#include "replay/modelled_memory.hpp"
#include "replay/policy.hpp"

namespace cuvmm::replay {

namespace pytorch {

inline constexpr Size step = 512;                   // all sizes are multiples of this
inline constexpr Size largest_small = 1 * MiB;      // requests up to this size have their own pool,
inline constexpr Size small_buffer = 2 * MiB;       // which takes memory in buffers of this size
inline constexpr Size large_buffer = 20 * MiB;      // larger requests are cut from these
inline constexpr Size least_own_buffer = 10 * MiB;  // requests from here on have their own buffer,
inline constexpr Size own_buffer_step = 2 * MiB;    // a multiple of this

enum class PoolKind : std::uint8_t { Small, Large };
struct Pool;

// A range of addresses within one buffer: used, free, or (in expandable buffers) without memory.
struct Piece {
  enum class State : std::uint8_t { Free, Used, Unmapped };
  std::uint64_t address = 0;
  Size size = 0;
  StreamId stream = no_stream;
  State state = State::Free;
  Pool* pool = nullptr;
  Piece* before = nullptr;  // its neighbours in the buffer
  Piece* after = nullptr;

  std::uint64_t end() const { return address + size; }
  bool is_whole_buffer() const { return before == nullptr && after == nullptr; }
  Piece*& next_unused() { return after; }
};

struct BySize {
  bool operator()(const Piece* a, const Piece* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};
struct ByAddress {
  bool operator()(const Piece* a, const Piece* b) const {
    return a->stream != b->stream ? a->stream < b->stream : a->address < b->address;
  }
};

struct Pool {
  PoolKind kind;
  std::set<Piece*, BySize> free{};
  std::set<Piece*, ByAddress> unmapped{};
};

}  // namespace pytorch

class PytorchModel : public Policy {
 public:
  Result<void> allocate(const ReplayEvent& event) final;
  Result<void> release(const ReplayEvent& event) final;
  PolicyCounters counters() const final;

 protected:
  using Piece = pytorch::Piece;
  using Pool = pytorch::Pool;
  using PoolKind = pytorch::PoolKind;

  explicit PytorchModel(Size limit) : memory_(limit) {}

  // A free piece of at least that size, removed from the pool's free set; nullptr if there is none.
  virtual Piece* take_cached(Pool& pool, Size size, StreamId stream) = 0;
  // The same from new memory; nullptr if the driver has none.
  virtual Piece* take_new(Pool& pool, Size size, StreamId stream) = 0;
  // Releases all free memory that can be released to the driver.
  virtual void release_cached() = 0;
  // Whether the rest of a piece is worth splitting off.
  virtual bool is_worth_cutting(PoolKind kind, Size rest) const = 0;

  // The best fit for that stream, left in the pool; end() if there is none.
  std::set<Piece*, pytorch::BySize>::iterator best_fit(Pool& pool, Size size, StreamId stream);
  Piece& make_piece(const Piece& as) { return pieces_.make() = as; }
  void forget_piece(Piece& piece) { pieces_.give_back(piece); }
  // Truncates the piece to its first `size` bytes; returns the rest, in the same state and in no
  // set.
  Piece& cut(Piece& piece, Size size);
  // Merges the piece, which must be in no set, with its neighbours of the same state.
  void merge(Piece& piece);

  Pool small_{PoolKind::Small};
  Pool large_{PoolKind::Large};
  ModelledMemory memory_;
  std::uint64_t creates_ = 0;

 private:
  void take_in(Piece& piece, Piece& neighbour);

  RecordPool<Piece> pieces_;
  std::unordered_map<BlockId, Piece*> used_;
  std::uint64_t retries_ = 0;
};

}  // namespace cuvmm::replay
