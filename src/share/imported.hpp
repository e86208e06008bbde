// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "share/session.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::share {

// Memory imported from another process, not yet mapped. References its chunks, as every mapping of
// it does.
class Imported {
 public:
  // Imports all chunks of a grant, or none if any of them fails.
  static Result<Imported> fetch(const Driver& driver, Session& session, const Grant& grant,
                                Deadline until);

  Size total() const { return grant_.total; }
  const Grant& grant() const { return grant_; }
  const std::vector<ChunkRef>& chunks() const { return chunks_; }
  // The number of the descriptor that carried the first chunk, which is closed by now.
  int first_descriptor() const { return first_descriptor_; }
  int device() const { return chunks_.front()->location().id(); }

 private:
  Imported(const Grant& grant, std::vector<ChunkRef> chunks, int first_descriptor)
      : grant_(grant), chunks_(std::move(chunks)), first_descriptor_(first_descriptor) {}

  Grant grant_;
  std::vector<ChunkRef> chunks_;
  int first_descriptor_;
};

// A mapping of imported memory. One Imported can have any number of mappings, and they may outlive
// it.
class MappedGrant {
 public:
  // Maps it for the devices in `who`, read-only if the grant is read-only. `hint` as for
  // reservations.
  static Result<MappedGrant> map(const Driver& driver, const Imported& imported,
                                 const AccessSet& who, CUdeviceptr hint = 0);

  MappedGrant(MappedGrant&&) noexcept = default;
  // Unmaps the previous memory: the caller must know that no work uses it any more.
  MappedGrant& operator=(MappedGrant&&) noexcept = default;

  CUdeviceptr address() const { return address_; }  // of the granted bytes within the chunks
  Size size() const { return size_; }

  // Changes the set of devices that may use it.
  Result<void> set_access(const AccessSet& who);

 private:
  struct GrantMapping;
  MappedGrant(std::unique_ptr<GrantMapping> place, CUdeviceptr address, Size size,
              GrantAccess access);

  struct GrantMappingEnd {
    void operator()(GrantMapping* place) const;
  };
  std::unique_ptr<GrantMapping, GrantMappingEnd> place_;
  CUdeviceptr address_;
  Size size_;
  GrantAccess access_;
};

}  // namespace cuvmm::share
