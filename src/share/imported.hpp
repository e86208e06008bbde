// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "share/session.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::share {

// Memory of another process, imported and not mapped yet. Refers to its chunks, as every mapping of
// it does.
class Imported {
 public:
  // All chunks of a grant; none where one of them cannot be had.
  static Result<Imported> fetch(const Driver& driver, Session& session, const Grant& grant,
                                Deadline until);

  Size total() const { return grant_.total; }
  const Grant& grant() const { return grant_; }
  const std::vector<ChunkRef>& chunks() const { return chunks_; }
  // That the first chunk came by; it is closed.
  int first_descriptor() const { return first_descriptor_; }
  int device() const { return chunks_.front()->location().id(); }

 private:
  Imported(const Grant& grant, std::vector<ChunkRef> chunks, int first_descriptor)
      : grant_(grant), chunks_(std::move(chunks)), first_descriptor_(first_descriptor) {}

  Grant grant_;
  std::vector<ChunkRef> chunks_;
  int first_descriptor_;
};

// Imported memory at addresses. Any number of these may be made of one Imported, and may outlive
// it.
class MappedGrant {
 public:
  // For `who`, or where the grant is read-only for reading by them. `hint` as for reservations.
  static Result<MappedGrant> map(const Driver& driver, const Imported& imported,
                                 const AccessSet& who, CUdeviceptr hint = 0);

  MappedGrant(MappedGrant&&) noexcept = default;
  // The caller knows that no work uses it any more.
  MappedGrant& operator=(MappedGrant&&) noexcept = default;

  CUdeviceptr address() const { return address_; }  // of the bytes that were meant
  Size size() const { return size_; }

  // Other devices than before may use it.
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
