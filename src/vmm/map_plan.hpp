// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "vmm/mapping.hpp"

namespace cuvmm {

// What is to change in one mapping or several, then done as a whole: either every change happens,
// or those done are undone in reverse and commit() says why. Order in which things are said does
// not matter: chunks are unmapped first, then mapped, then access is given, once for each
// contiguous stretch with the same rights.
//
// Unmapping is not ordered with streams and waits for nothing: the caller knows that no work uses
// what goes. The mappings stay where they are, and unchanged by others, from the first change
// that is planned until the commit.
class MapPlan {
 public:
  // The one chunk that begins at `offset`, as it was mapped: the driver refuses parts.
  void unmap(Mapping& mapping, Size offset);
  // Every chunk in the stretch, of which there is at least one. None may reach over its ends.
  void unmap(Mapping& mapping, Stretch stretch);
  void map(Mapping& mapping, Size offset, ChunkRef chunk, AccessSet access);
  // For chunks that lie there now and stay. The stretch is wholly mapped and cuts no chunk.
  void allow(Mapping& mapping, Stretch stretch, AccessSet access);

  bool is_empty() const { return unmaps_.empty() && maps_.empty() && allows_.empty(); }

  // Whether it could be done, asked of the bookkeeping alone.
  Result<void> validate();

  // Validates, then does it. Afterwards the plan is empty; after an Error it is as it was and may
  // be committed again. The chunks taken out live on only where somebody else refers to them.
  Result<void> commit();

  // After a commit whose undo the driver refused as well, which its Error says: chunks that could
  // not be put back where they lay. They live while the plan does. The mappings say what is really
  // mapped. Empty in all other cases.
  const std::vector<MappedChunk>& left_out() const { return left_out_; }

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
  // A chunk on its way out: first its place, then the entry itself.
  struct Leaving {
    Mapping* mapping;
    Mapping::Iterator place;
    Size offset;
    AccessSet access;  // as it was
    Mapping::Chunks::node_type entry;
  };
  // A stretch whose rights have been changed, and those it had.
  struct Allowed {
    Mapping* mapping;
    Stretch stretch;
    AccessSet before;
    AccessSet after;
  };
  // How far a commit has come.
  struct Progress {
    std::size_t unmapped = 0;
    std::size_t mapped = 0;
    std::vector<Allowed> allowed;
  };

  static bool before(const Mapping* a, Size a_offset, const Mapping* b, Size b_offset) {
    return a != b ? std::less<const Mapping*>{}(a, b) : a_offset < b_offset;
  }

  Result<void> find_leaving();
  Result<void> check_maps() const;
  Result<void> check_allows() const;
  bool is_leaving(const Mapping* mapping, Size offset) const;

  Result<void> carry_out(Progress& progress);
  Result<void> give_access_to_mapped();
  Result<void> change_access(const Allow& allow, Progress& progress);
  // Whether all of it could be undone.
  bool undo(Progress& progress);
  bool put_back(Leaving& leaving);
  bool give_access_to_put_back();
  void clear();

  std::vector<Unmap> unmaps_;
  std::vector<Map> maps_;
  std::vector<Allow> allows_;
  std::vector<Leaving> leaving_;  // what unmaps_ means, in order; made by validate()
  std::vector<MappedChunk> left_out_;
};

}  // namespace cuvmm
