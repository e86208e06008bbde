// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "sim/cuda.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

class Device;

// Physical memory: of a device, or of the host where device is nullptr. Alive while a handle, a
// mapping or an allocation holds it.
class Chunk : public std::enable_shared_from_this<Chunk> {
 public:
  // nullptr where the device is full (or the system has no memory file to give).
  static std::shared_ptr<Chunk> create(Device* device, Size size,
                                       const CUmemAllocationProp& properties);
  // The same, taking back first what pools hold and nobody uses (measured: cuMemAlloc and
  // cuMemCreate do). Not for a pool's own chunks.
  static std::shared_ptr<Chunk> create_by_all_means(Device* device, Size size,
                                                    const CUmemAllocationProp& properties);
  // Of bytes that another chunk left.
  static std::shared_ptr<Chunk> create_of(Device& device, const Extent& left,
                                          const CUmemAllocationProp& properties);
  // What somebody exported. The chunk itself where this process created it or has imported it
  // already; else one that is counted where it was created. nullptr where the file is not such.
  static std::shared_ptr<Chunk> import(int file);

  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  Device* device() const { return device_; }
  Size size() const { return extent_.size; }
  const Extent& extent() const { return extent_; }
  const CUmemAllocationProp& properties() const { return properties_; }
  std::uint64_t id() const { return id_; }

  // Another process can see only a file of its own. The bytes move there under the caller's care
  // (AddressSpace::make_shareable), since what shows them must be shown anew.
  bool has_own_file() const { return own_file_; }
  void adopt_own_file(const Extent& extent);

  // Empties the bytes and leaves them to another chunk; this one is to end.
  Extent leave_bytes();

  // How often the program holds its handle: cuMemCreate, import and retain each count.
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
};

}  // namespace cuvmm::sim
