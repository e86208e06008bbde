// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <memory>
#include <vector>

#include "driver/driver.hpp"
#include "vmm/budget.hpp"

namespace cuvmm {

// Pinned host memory for contents swapped out of a device; pinned, so that copies run at the link's
// speed. Allocating it is slow, since the kernel clears it and the driver pins it. So internal
// threads touch it ahead of use, in huge pages, and each piece is pinned on first use. It is kept
// for the next time until given back.
//
// Not thread-safe. The caller needs a current context and a HookBypass.
class HostStock {
 public:
  // Charges the budget, if given.
  explicit HostStock(const Driver& driver, Size piece = usual_piece,
                     std::shared_ptr<Budget> budget = nullptr)
      : driver_(driver), usual_piece_(piece), budget_(std::move(budget)) {}
  ~HostStock() { give_back(0); }
  HostStock(const HostStock&) = delete;
  HostStock& operator=(const HostStock&) = delete;

  // Prefers that NUMA node, if the system has it.
  void be_near(int node) { node_ = node; }

  // Makes the total at least `bytes`, which the threads may still be touching. OutOfMemory if the
  // budget does not allow it, in which case nothing is added, or if the system has no addresses.
  Result<void> provide(Size bytes);
  // The bytes from `offset` to the end of their piece: touched, and pinned unless the driver
  // refused. `offset` must lie within what was provided.
  struct Part {
    std::byte* bytes = nullptr;
    Size size = 0;
  };
  Part at(Size offset);
  // Waits until the threads have touched everything.
  void wait_for_all();
  // Threads are still touching memory, so wait_for_all() would block.
  bool is_on_its_way() const;

  Size bytes() const { return pieces_.empty() ? 0 : pieces_.back()->end(); }
  Size pinned_bytes() const;
  // Checks again which pieces are pinned: the driver may have unpinned memory pinned in a context
  // that has ended.
  void look_again();
  // Gives memory back until at most `down_to` is left. Stops the touching threads instead of
  // waiting for them to finish. Returns the number of bytes released.
  Size give_back(Size down_to);

 private:
  static constexpr Size usual_piece = 128 * MiB;

  struct Piece {
    Size begin;  // offset in the stock
    Size size;
    std::byte* bytes;
    Commitment right;
    bool is_pinned = false;
    CUcontext pinned_in = nullptr;
    Size end() const { return begin + size; }
  };
  struct Touching;

  Commitment right_to(Size size) const;
  Result<void> add_piece(Size size, Commitment right);
  void touch(const std::vector<Piece*>& pieces);
  // Makes the threads end after their current slab. The slabs that none has touched remain for
  // touch().
  void stop_touching();
  static void* touch_some(void* touching);
  bool pin(Piece& piece);
  void release(Piece& piece);

  const Driver& driver_;
  const Size usual_piece_;
  const std::shared_ptr<Budget> budget_;
  int node_ = -1;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::shared_ptr<Touching> touching_;
  std::vector<pthread_t> threads_;
};

}  // namespace cuvmm
