// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/invariant.hpp"
#include "vmm/budget.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

// Chunks of the same kind are interchangeable.
struct ChunkKind {
  Size size;
  Location location;
  Export exportable = Export::No;

  friend bool operator==(const ChunkKind&, const ChunkKind&) = default;
};

struct FreeStack;
struct LocalChunks;

// A chunk that belongs to a store, in use or free.
struct StoredChunk : ChunkRecord {
  StoredChunk(Chunk&& owned, ChunkHome* where_from, LocalChunks& at)
      : ChunkRecord(std::move(owned), where_from), local(&at) {}

  LocalChunks* const local;
  FreeStack* stack = nullptr;  // of its kind
  StoredChunk* newer = nullptr;
  StoredChunk* older = nullptr;
  std::uint64_t freed_at = 0;  // increases with each free
};
static_assert(sizeof(StoredChunk) <= 88, "10^5 of them are in use");

// Free chunks of one size, most recently freed on top: its memory is the likeliest to be in a
// cache.
struct FreeStack {
  Size size = 0;
  StoredChunk* newest = nullptr;
  StoredChunk* oldest = nullptr;
  std::size_t free_count = 0;
  std::size_t members = 0;  // free or in use
};

// The free chunks of one location, by size. Also counts the chunks in use, so that it can drop a
// size when its last chunk is gone.
class FreeChunks {
 public:
  // Call when a chunk has been created, and before it is deleted. It must not be free at either
  // time.
  void join(StoredChunk& chunk);
  void leave(StoredChunk& chunk);

  void push(StoredChunk& chunk);
  // nullptr if there is none. An exportable chunk also serves requests for one that is not.
  StoredChunk* pop(Size size, Export exportable);
  // The chunk that has been free for longest, of any size.
  StoredChunk* pop_oldest();

  Size free_bytes() const { return free_bytes_; }
  std::size_t free_count() const;
  InvariantViolation violation(const LocalChunks* local) const;

 private:
  using Stacks = std::unordered_map<Size, FreeStack>;
  Stacks& stacks_of(Export exportable) { return exportable == Export::Yes ? exportable_ : local_; }
  StoredChunk* pop_from(Stacks& stacks, Size size);
  void unlink(StoredChunk& chunk);
  template <class Visit>
  void for_each_stack(Visit visit) const;

  Stacks local_;
  Stacks exportable_;
  Size free_bytes_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace cuvmm
