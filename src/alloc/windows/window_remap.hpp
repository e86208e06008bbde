// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/windows/window_table.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Changes the backing of windows, and records it in their blocks. Call under the lock of the table.
class WindowRemap final : private BackingLedger {
 public:
  explicit WindowRemap(WindowTable& table) : table_(table) {}

  // The window of a block's piece. An empty chunk stands for nothing.
  void add_piece(WindowBlock& block, const ChunkRef& after);
  // One of its own chunks, and where it lies or will lie.
  void add_own(WindowBlock& block, std::size_t index, CUdeviceptr address, const ChunkRef& after);

  // All or nothing, unless the driver refuses an undo too. After an Error it may be tried again.
  Result<void> commit();
  // Whether some undo was refused since the last commit that succeeded.
  bool is_torn() const { return is_torn_; }
  // Unmaps whatever is there, now or later. For the blocks' own chunks.
  void unmap_all();
  // After a commit: whether the new chunk is behind the block's piece, usable or not.
  bool has_after(const WindowBlock& block) const;

 private:
  struct Slot {
    CUdeviceptr address;
    WindowBlock* block;
    std::size_t index;  // of its own chunks, or its_piece
    ChunkRef after;
    bool has_after = false;
  };
  static constexpr std::size_t its_piece = ~std::size_t{0};

  Backing backing(const Slot& slot) const;
  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override;
  void remove_backing(At at, const ChunkRef& chunk) override;

  WindowTable& table_;
  std::vector<Slot> slots_;
  bool is_torn_ = false;
};

}  // namespace cuvmm
