// SPDX-License-Identifier: Apache-2.0
#include "sim/chunk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "base/made_once.hpp"
#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Chunks with a file of their own, by inode, so that a process that imports what it already has
// gets the same memory, as on a card.
class SharedChunks {
 public:
  static SharedChunks& get() {
    static constinit MadeOnce<SharedChunks> chunks;
    return chunks.get();
  }
  void add(ino_t file, const std::shared_ptr<Chunk>& chunk) {
    const std::lock_guard holding{lock_};
    std::erase_if(chunks_, [](const auto& known) { return known.second.expired(); });
    chunks_[file] = chunk;
  }
  std::shared_ptr<Chunk> find(ino_t file) {
    const std::lock_guard holding{lock_};
    const auto found = chunks_.find(file);
    return found == chunks_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex lock_;
  std::map<ino_t, std::weak_ptr<Chunk>> chunks_;
};

// Memory of a device that this process does not see counts as the first one's.
CUmemLocation location_of_own_file(int file) {
  const int number = device_of_own_file(file).value_or(0);
  if (number < 0) return {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
  const Device* const device = Process::get().device_numbered(number);
  return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device != nullptr ? device->ordinal() : 0};
}

}  // namespace

std::shared_ptr<Chunk> Chunk::create(Device* device, Size size,
                                     const CUmemAllocationProp& properties) {
  if (device != nullptr && !device->take(size)) return nullptr;
  Backing& backing = device != nullptr ? device->backing() : Process::get().host_backing();
  const Extent extent = backing.take(size);
  if (extent.file == -1) {
    if (device != nullptr) device->give_back(size);
    return nullptr;
  }
  return make(device, extent, properties);
}

std::shared_ptr<Chunk> Chunk::create_of(Device& device, const Extent& left,
                                        const CUmemAllocationProp& properties) {
  return device.take(left.size) ? make(&device, left, properties) : nullptr;
}

std::shared_ptr<Chunk> Chunk::make(Device* device, const Extent& extent,
                                   const CUmemAllocationProp& properties) {
  std::shared_ptr<Chunk> chunk{new Chunk};
  chunk->device_ = device;
  chunk->extent_ = extent;
  chunk->properties_ = properties;
  chunk->id_ = next_id();
  return chunk;
}

std::shared_ptr<Chunk> Chunk::create_reclaiming(Device* device, Size size,
                                                const CUmemAllocationProp& properties) {
  auto chunk = create(device, size, properties);
  if (chunk != nullptr || device == nullptr) return chunk;
  release_unused_pool_memory(*device);
  return create(device, size, properties);
}

std::shared_ptr<Chunk> Chunk::import(int file) {
  struct stat status {};
  if (fcntl(file, F_GET_SEALS) < 0 || fstat(file, &status) != 0 || status.st_size <= 0) {
    return nullptr;  // not a memory file
  }
  const int mine = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (mine < 0) return nullptr;
  std::shared_ptr<Chunk> chunk{new Chunk};
  chunk->extent_ = {.file = mine, .offset = 0, .size = static_cast<Size>(status.st_size)};
  chunk->own_file_ = true;
  chunk->id_ = next_id();
  chunk->properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  chunk->properties_.location = location_of_own_file(mine);
  chunk->properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  chunk->original_ = SharedChunks::get().find(status.st_ino);
  if (const Chunk* const original = chunk->original_.get()) {
    chunk->device_ = original->device_;
    chunk->properties_ = original->properties_;
  } else {
    SharedChunks::get().add(status.st_ino, chunk);
  }
  return chunk;
}

void Chunk::adopt_own_file(const Extent& extent) {
  Backing& backing = device_ != nullptr ? device_->backing() : Process::get().host_backing();
  backing.give_back(extent_);
  extent_ = extent;
  own_file_ = true;
  struct stat status {};
  if (fstat(extent.file, &status) == 0) SharedChunks::get().add(status.st_ino, shared_from_this());
}

Extent Chunk::leave_bytes() {
  const Extent left = extent_;
  Backing::empty(left);
  extent_.file = -1;
  return left;
}

Chunk::~Chunk() {
  if (own_file_) {
    close_own_file(extent_);
  } else {
    Backing& backing = device_ != nullptr ? device_->backing() : Process::get().host_backing();
    backing.give_back(extent_);
  }
  if (device_ != nullptr && original_ == nullptr) device_->give_back(extent_.size);
}

}  // namespace cuvmm::sim
