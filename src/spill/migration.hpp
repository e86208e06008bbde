// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "alloc/device_memory.hpp"
#include "alloc/eviction_set.hpp"
#include "vmm/copy_bytes.hpp"
#include "vmm/copy_stream.hpp"

namespace cuvmm {

// Replaces the chunks behind live memory, keeping addresses and contents: near chunks for far ones,
// or the reverse. Requires that nothing else touches the memory (quiesce()), and that the
// context is current. A chunk keeps its contents until its replacement is mapped, so wherever the
// driver refuses, nothing is lost.
class Migration {
 public:
  Migration(const Driver& driver, DeviceMemory& device, EvictionSet evicted);
  ~Migration();
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  // Moves near chunks out first, then far ones in, as much as there is memory for. Whatever fails
  // stays where it was.
  struct Moved {
    Size out = 0;
    Size in = 0;
  };
  Moved make();

  // True if some memory is unmapped because the driver refused to map either chunk. Its contents
  // are kept, but it must not be touched until restore() has put it back.
  bool is_broken() const { return !broken_.empty(); }
  bool restore();

 private:
  struct Group {
    std::span<EvictedChunk> leaving;  // of one owner, all with contents to move
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
