// SPDX-License-Identifier: Apache-2.0
// What a correct program may rely on: live blocks never overlap, contents stay, and memory reaches
// its next owner only after all work of the previous one.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "driver/cuda.hpp"
#include "program.hpp"

namespace cuvmm::test {

enum class Kind : std::uint8_t { Blocking, Ordered };

// A block that the program holds. One thread owns it at a time; its work on the device may outlive
// it.
struct Block {
  CUdeviceptr address = 0;
  Size size = 0;
  int device = 0;
  Kind kind = Kind::Blocking;
  By by = By::Us;
  CUmemoryPool pool = nullptr;  // nullptr: the default one
  CUstream stream = nullptr;    // that its last work was submitted to
  bool is_used = false;         // work has been submitted
  std::uint32_t stamp = 0;      // what its bytes are derived from, once all its work is done
  std::atomic<int> pending{0};  // work that has not run yet
  std::atomic<int> entered{0};  // work begun and not ended: stays above 0 where work faulted

  CUdeviceptr end() const { return address + size; }
};
using BlockRef = std::shared_ptr<Block>;

class Oracle {
 public:
  // Only the first failure of a run counts.
  void fail(const std::string& what);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::string failure() const;

  // Returns the blocks whose work may still run in this block's memory.
  std::vector<BlockRef> begin(const BlockRef& block);
  // Call before the block is freed.
  void end(const BlockRef& block);
  // The free was refused.
  void end_was_refused(const BlockRef& block);

  // Where work has faulted, if known.
  std::string faulted() const;

  std::vector<BlockRef> live() const;
  Size live_bytes(const std::function<bool(const Block&)>& which) const;

 private:
  struct Freed {
    CUdeviceptr begin;
    CUdeviceptr end;
    BlockRef block;
  };
  void forget_what_is_done();

  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;  // guards the members below
  std::string failure_;
  std::map<CUdeviceptr, BlockRef> live_;
  std::vector<Freed> freed_;  // with work pending when last checked
  int until_forgetting_ = 0;
};

// Work on a block that the device runs in its turn: it checks the block's contents and fills it
// again.
struct Touch {
  Oracle& oracle;
  BlockRef block;
  bool holds_something;  // `before` says with what
  std::uint32_t before;
  std::uint32_t after;
  std::vector<BlockRef> predecessors;  // their work must be complete

  void run(const std::function<std::byte*(CUdeviceptr)>& memory) const;
};

}  // namespace cuvmm::test
