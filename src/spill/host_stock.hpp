// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "driver/driver.hpp"
#include "vmm/budget.hpp"

namespace cuvmm {

// Host memory for contents swapped out of a device, in huge pages. It is kept for the next time
// until given back. The kernel provides a page on first use. Pinned memory copies at the link's
// speed, but pinning is slow; contents for memory that is not pinned go through a StagingRing.
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

  // Makes the total at least `bytes`. OutOfMemory if the budget does not allow it, in which case
  // nothing is added, or if the system has no addresses.
  Result<void> provide(Size bytes);
  // The bytes from `offset` to the end of their piece. `offset` must lie within what was provided.
  struct Part {
    std::byte* bytes = nullptr;
    Size size = 0;
    bool is_pinned = false;
  };
  Part at(Size offset);
  // The same, pinned unless the driver refuses.
  Part pinned_at(Size offset);
  // Pins one more piece. False if there is none, or if the driver refuses.
  bool pin_next();

  Size bytes() const { return pieces_.empty() ? 0 : pieces_.back()->end(); }
  Size pinned_bytes() const;
  // In pieces that at() or pinned_at() has handed out. The system may not have provided the others.
  Size touched_bytes() const;
  // Checks again which pieces are pinned: the driver unpins memory when the context ends in which
  // it was pinned. Call with a current context.
  void look_again();
  // Gives memory back until at most `down_to` is left. Returns the number of bytes released.
  Size give_back(Size down_to);

 private:
  static constexpr Size usual_piece = 128 * MiB;

  struct Piece {
    Size begin;  // offset in the stock
    Size size;
    std::byte* bytes;
    Commitment right;
    bool is_touched = false;
    CUcontext pinned_in = nullptr;
    bool is_pinned() const { return pinned_in != nullptr; }
    Size end() const { return begin + size; }
  };

  Commitment right_to(Size size) const;
  Result<void> add_piece(Size size, Commitment right);
  Piece& piece_at(Size offset);
  void pin(Piece& piece);
  void release(Piece& piece);

  const Driver& driver_;
  const Size usual_piece_;
  const std::shared_ptr<Budget> budget_;
  int node_ = -1;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace cuvmm
