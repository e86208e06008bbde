// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "alloc/program_chunks.hpp"

namespace cuvmm {

// Memory that the program manages itself and that other processes may open by an IPC handle: the
// contiguous mappings from the one that the handle was requested for onwards. Borrowers keep the
// chunks, whatever the program does with its own mappings. Thread-safe.
class ProgramLending {
 public:
  using Id = Lending::Id;

  explicit ProgramLending(ProgramChunks& chunks) : chunks_(chunks) {}

  bool holds(CUdeviceptr address) const { return chunks_.contains(address); }
  // Whether the ID was made here, not by Lending.
  static bool is_one(Id id) { return (id & mark) != 0; }

  // The chunks stay where they are from now on. A repeated request for the same mapping has the
  // same answer, and lends what is mapped there by now. NotSupported if some chunk was created
  // without a handle type.
  Result<Memory::Lent> lend(CUdeviceptr address, const Lending::Secret& fresh);
  // nullopt if it was never lent, or if a chunk of it has ended.
  std::optional<Lending::Secret> secret_of(Id id) const;
  // NotFound in the same cases.
  Result<Lending::Block> borrow(Id id) const;

 private:
  static constexpr Id mark = Id{1} << 63;
  // A chunk may be mapped at several addresses, with different neighbours.
  struct Begin {
    std::uint64_t chunk;
    CUdeviceptr address;
    bool operator==(const Begin&) const = default;
  };
  struct Lent {
    Begin begin;
    Lending::Secret secret;
    std::vector<std::weak_ptr<ProgramChunk>> chunks;
    bool is_there() const;
  };

  ProgramChunks& chunks_;

  mutable Lock lock_{LockOrder::Lending};  // guards what follows
  std::unordered_map<Id, Lent> all_;
  Id last_ = mark;
};

}  // namespace cuvmm
