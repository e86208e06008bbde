// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <memory>
#include <vector>

#include "driver/driver.hpp"
#include "vmm/budget.hpp"

namespace cuvmm {

// Memory of the host for contents that leave a device, pinned, so that they are copied at the
// link's speed. What takes long is to get it: the kernel clears it, and the driver pins it. So
// threads of its own touch it ahead of its users, in the system's large units, and each piece
// is pinned when it is first asked for. It stays for the next time, until given back.
//
// Not synchronised. Callers have a context current, and a HookBypass.
class HostStock {
 public:
  // Within the budget, where there is one.
  explicit HostStock(const Driver& driver, Size piece = usual_piece,
                     std::shared_ptr<Budget> budget = nullptr)
      : driver_(driver), usual_piece_(piece), budget_(std::move(budget)) {}
  ~HostStock() { give_back(0); }
  HostStock(const HostStock&) = delete;
  HostStock& operator=(const HostStock&) = delete;

  // On that NUMA node, where the system has one.
  void be_near(int node) { node_ = node; }

  // So much in all is there, or on its way. OutOfMemory where the budget does not allow it, and
  // then nothing more is there than before, or where the system has no addresses.
  Result<void> provide(Size bytes);
  // Bytes from `offset` on, up to the end of their piece: there, and pinned unless the driver
  // refused. Of what was provided.
  struct Part {
    std::byte* bytes = nullptr;
    Size size = 0;
  };
  Part at(Size offset);
  // Nothing is on its way any more.
  void wait_for_all();
  // Threads are still touching what was provided, so that wait_for_all() would wait for them.
  bool is_on_its_way() const;

  Size bytes() const { return pieces_.empty() ? 0 : pieces_.back()->end(); }
  Size pinned_bytes() const;
  // The driver may have unpinned what was pinned in a context that is gone.
  void look_again();
  // Until no more than that is left. Does not wait for threads that touch it: they stop. Returns
  // how much went.
  Size give_back(Size down_to);

 private:
  static constexpr Size usual_piece = 128 * MiB;

  struct Piece {
    Size begin;  // of all
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
  // The threads end with the slab that they are at. What nobody has touched stays for touch().
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
