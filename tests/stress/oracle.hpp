// SPDX-License-Identifier: Apache-2.0
// What a correct program may rely on: nothing live overlaps, contents stay, and memory reaches the
// next only after all work of the one before.
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

// What the program holds. One thread has it at a time; its work on the device may outlive it.
struct Block {
  CUdeviceptr address = 0;
  Size size = 0;
  int device = 0;
  Kind kind = Kind::Blocking;
  By by = By::Us;
  CUmemoryPool pool = nullptr;  // nullptr: the default one
  CUstream stream = nullptr;    // that its last work was given
  bool is_used = false;         // it was given work
  std::uint32_t stamp = 0;      // what its bytes are made from, once all its work is done
  std::atomic<int> pending{0};  // work that has not run yet
  std::atomic<int> entered{0};  // work that has begun, and did not end where it faulted

  CUdeviceptr end() const { return address + size; }
};
using BlockRef = std::shared_ptr<Block>;

class Oracle {
 public:
  // The first failure of a run is what counts.
  void fail(const std::string& what);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::string failure() const;

  // Whose work may still run in its memory.
  std::vector<BlockRef> begin(const BlockRef& block);
  // Before it is given back.
  void end(const BlockRef& block);
  // It could not be given back.
  void end_was_refused(const BlockRef& block);

  // Where work has faulted, as far as is known.
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
  mutable std::mutex mutex_;  // guards what follows
  std::string failure_;
  std::map<CUdeviceptr, BlockRef> live_;
  std::vector<Freed> freed_;  // with work pending when they were last looked at
  int until_forgetting_ = 0;
};

// Work on a block, run by the device in its turn: what the block held is looked at, and it is
// filled anew.
struct Touch {
  Oracle& oracle;
  BlockRef block;
  bool holds_something;  // `before` says what
  std::uint32_t before;
  std::uint32_t after;
  std::vector<BlockRef> predecessors;  // whose work must be over

  void run(const std::function<std::byte*(CUdeviceptr)>& memory) const;
};

}  // namespace cuvmm::test
