// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "alloc/device_memory.hpp"
#include "alloc/eviction_set.hpp"
#include "vmm/copy_bytes.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm {

// Live memory gets other chunks behind the same addresses, with its contents: of the device in
// place of spilled ones, or the other way round. While nothing else touches it (hold_still()), and
// with the context current. What a chunk held stays in it until the other one is mapped, so
// wherever the driver refuses, nothing is lost.
class Migration {
 public:
  struct CopyStream;

  Migration(const Driver& driver, DeviceMemory& device, EvictionSet evicted);
  ~Migration();
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  // First what lies on the device goes, then what lies elsewhere comes. As much as there is memory
  // for; what fails stays where it was.
  struct Moved {
    Size out = 0;
    Size in = 0;
  };
  Moved make();

  // Some memory has nothing behind it, since the driver refuses to map either chunk. Its contents
  // are kept; it must not be touched until mend() has put it back.
  bool is_broken() const { return !broken_.empty(); }
  bool mend();

 private:
  struct Group {
    std::span<EvictedChunk> leaving;  // of one owner, and all with contents to be moved
    std::vector<ChunkRef> before;
    std::vector<ChunkRef> after;
  };
  using Take = std::function<Result<ChunkRef>(const EvictedChunk&)>;

  Size move_all(std::span<EvictedChunk> some, const Take& take);
  Size move(std::span<EvictedChunk> some, std::vector<ChunkRef> fresh);
  bool copy(const Group& group);
  bool swap(Group& group);
  static bool put_back(const Group& group);
  static bool put_back_either(Group& group);

  const Driver& driver_;
  DeviceMemory& device_;
  EvictionSet evicted_;
  std::shared_ptr<CopyStream> stream_;
  std::vector<Group> broken_;
};

}  // namespace cuvmm
