// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "vmm/mapping.hpp"

namespace cuvmm {

class Remap;

// A transaction of changes to one mapping or several. Either every change happens, or completed
// steps are undone in reverse and commit() returns the error. The order in which changes are added
// does not matter: chunks are unmapped first, then mapped, then access is set, once for each
// contiguous stretch with the same rights.
//
// Unmapping is not ordered with streams and waits for nothing: the caller guarantees that no work
// uses what is unmapped. From the first planned change until the commit, the mappings must not be
// moved or changed by others.
class MapPlan {
 public:
  // Unmaps the chunk that begins at `offset`, as it was mapped: the driver cannot unmap part of
  // one.
  void unmap(Mapping& mapping, Size offset);
  // Unmaps all chunks in the stretch. There must be at least one, and none may cross its ends.
  void unmap(Mapping& mapping, Stretch stretch);
  void map(Mapping& mapping, Size offset, ChunkRef chunk, AccessSet access);
  // Sets the access to chunks that are mapped now and stay. The stretch must be wholly mapped and
  // must not cut a chunk.
  void allow(Mapping& mapping, Stretch stretch, AccessSet access);

  bool is_empty() const { return unmaps_.empty() && maps_.empty() && allows_.empty(); }

  // Checks the plan against the bookkeeping, without driver calls.
  Result<void> validate();

  // Validates the plan, then carries it out. Afterwards the plan is empty; after an Error it is
  // unchanged and may be committed again. Unmapped chunks live on only if other references exist.
  Result<void> commit();

 private:
  enum class Extent : std::uint8_t { OneChunk, AllWithin };
  struct Unmap {
    Mapping* mapping;
    Stretch stretch;
    Extent extent;
    Size begin() const { return stretch.offset; }
    bool operator<(const Unmap& b) const { return before(mapping, begin(), b.mapping, b.begin()); }
  };
  struct Map {
    Mapping* mapping;
    Size offset;
    ChunkRef chunk;
    AccessSet access;
    Stretch where() const { return {offset, chunk->size()}; }
    Size begin() const { return offset; }
    bool operator<(const Map& b) const { return before(mapping, begin(), b.mapping, b.begin()); }
  };
  struct Allow {
    Mapping* mapping;
    Stretch stretch;
    AccessSet access;
    Size begin() const { return stretch.offset; }
    bool operator<(const Allow& b) const { return before(mapping, begin(), b.mapping, b.begin()); }
  };
  struct Leaving {
    Mapping* mapping;
    Mapping::Iterator place;
    Size offset;
  };
  class Ledger;

  static bool before(const Mapping* a, Size a_offset, const Mapping* b, Size b_offset) {
    return a != b ? std::less<const Mapping*>{}(a, b) : a_offset < b_offset;
  }

  Result<void> find_leaving();
  Result<void> check_maps() const;
  Result<void> check_allows() const;
  bool is_leaving(const Mapping* mapping, Size offset) const;

  // The slots of the commit, in `remap` and in `ledger`.
  void add_exchanges(Remap& remap, Ledger& ledger) const;
  void add_allows(Remap& remap, Ledger& ledger) const;
  void clear();

  std::vector<Unmap> unmaps_;
  std::vector<Map> maps_;
  std::vector<Allow> allows_;
  std::vector<Leaving> leaving_;  // the chunks that unmaps_ covers, in order; set by validate()
};

}  // namespace cuvmm
