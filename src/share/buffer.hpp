// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "share/granted.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::share {

struct BufferSettings {
  int device = 0;
  Size size = 0;        // rounded up to chunks
  Size chunk_size = 0;  // the steps that grants are made in; 0: one chunk for all of it
};

// Memory of a device that this process shares with others: chunks in a row, in steps of which it is
// granted, since the driver maps no part of a chunk. Counts against `store`'s limit where one is
// given.
class Buffer {
 public:
  // NotSupported where the device maps no memory, or gives none away by file descriptor.
  static Result<Buffer> create(const Driver& driver, const BufferSettings& settings,
                               ChunkStore* store = nullptr);

  Size size() const { return chunk_size_ * chunks_.size(); }
  Size granule() const { return granule_; }
  Size chunk_size() const { return chunk_size_; }
  std::size_t chunk_count() const { return chunks_.size(); }

  // All of it at addresses of this process, for its device. Once.
  Result<CUdeviceptr> map();
  CUdeviceptr address() const;  // 0 before that

  Result<Fd> export_fd(std::size_t chunk) const;
  // So many chunks from that one on; InvalidArgument where it has not got them.
  Result<Granted> grant(std::size_t first, std::size_t count, GrantAccess access,
                        std::uint64_t tag = 0) const;

 private:
  struct BufferMapping;
  struct BufferMappingEnd {
    void operator()(BufferMapping* place) const;
  };
  Buffer(const Driver& driver, int device, Size granule, Size chunk_size,
         std::vector<ChunkRef> chunks);

  const Driver* driver_;
  int device_;
  Size granule_;
  Size chunk_size_;
  std::vector<ChunkRef> chunks_;
  std::vector<std::shared_ptr<KeptFile>> files_;  // of each
  std::unique_ptr<BufferMapping, BufferMappingEnd> place_;
};

}  // namespace cuvmm::share
