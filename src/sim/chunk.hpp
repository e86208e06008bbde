// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "sim/cuda.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

class Device;

// Physical memory of a device, or of the host if `device` is nullptr. Lives while a handle, a
// mapping or an allocation holds it.
class Chunk : public std::enable_shared_from_this<Chunk> {
 public:
  // Returns nullptr if the device is full or the system cannot create a memory file.
  static std::shared_ptr<Chunk> create(Device* device, Size size,
                                       const CUmemAllocationProp& properties);
  // The same, but if the device is full it first releases unused memory of pools, as cuMemAlloc and
  // cuMemCreate do (measured). Not for a pool's own chunks.
  static std::shared_ptr<Chunk> create_reclaiming(Device* device, Size size,
                                                  const CUmemAllocationProp& properties);
  // Reuses the bytes that another chunk left behind.
  static std::shared_ptr<Chunk> create_of(Device& device, const Extent& left,
                                          const CUmemAllocationProp& properties);
  // Opens an exported chunk. Each import is a chunk of its own with a handle of its own, also in
  // the process that created the memory (measured). The memory counts for that process. Returns
  // nullptr if the file is not a memory file.
  static std::shared_ptr<Chunk> import(int file);

  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  Device* device() const { return device_; }
  Size size() const { return extent_.size; }
  const Extent& extent() const { return extent_; }
  const CUmemAllocationProp& properties() const { return properties_; }
  std::uint64_t id() const { return id_; }

  // Only a chunk with a file of its own can be shared with another process. The caller moves the
  // bytes there (AddressSpace::make_shareable), since all views of them must be mapped anew.
  bool has_own_file() const { return own_file_; }
  void adopt_own_file(const Extent& extent);

  // Clears the bytes and hands them over to another chunk. This chunk must then be destroyed.
  Extent leave_bytes();

  // How many times the program holds its handle: once by cuMemCreate or an import, and once by each
  // retain.
  std::atomic<int> handles{0};

 private:
  Chunk() = default;
  static std::shared_ptr<Chunk> make(Device* device, const Extent& extent,
                                     const CUmemAllocationProp& properties);
  Device* device_ = nullptr;
  Extent extent_;
  CUmemAllocationProp properties_{};
  bool own_file_ = false;
  std::uint64_t id_ = 0;
  std::shared_ptr<Chunk> original_;  // of an import: the chunk of this process that has its bytes
};

}  // namespace cuvmm::sim
