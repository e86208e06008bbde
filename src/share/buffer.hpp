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
  Size chunk_size = 0;  // the granularity of grants; 0: one chunk for all of it
};

// Device memory that this process shares with others, as a row of chunks. Grants are whole chunks,
// since the driver cannot map part of one. Counts against the limit of `store`, if given.
class Buffer {
 public:
  // NotSupported if the device has no virtual memory management or cannot export memory as a file
  // descriptor.
  static Result<Buffer> create(const Driver& driver, const BufferSettings& settings,
                               ChunkStore* store = nullptr);

  Size size() const { return chunk_size_ * chunks_.size(); }
  Size granule() const { return granule_; }
  Size chunk_size() const { return chunk_size_; }
  std::size_t chunk_count() const { return chunks_.size(); }

  // Maps the whole buffer in this process for its device. At most once.
  Result<CUdeviceptr> map();
  CUdeviceptr address() const;  // 0 before map()

  Result<Fd> export_fd(std::size_t chunk) const;
  // Grants `count` chunks from `first` on; InvalidArgument if the buffer has fewer.
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
  std::unique_ptr<BufferMapping, BufferMappingEnd> place_;
};

}  // namespace cuvmm::share
