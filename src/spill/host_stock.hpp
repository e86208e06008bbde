// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <memory>
#include <vector>

#include "base/size.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// Memory of the host for contents that leave a device, pinned, so that they are copied at the
// link's speed. What takes long is to get it: the kernel clears it, and the driver pins it. So
// threads of its own touch it ahead of whoever uses it, in the system's large units, and each piece
// is pinned when it is first asked for. It stays for the next time, until given back.
//
// Not synchronised. Whoever calls has a context current, and is inside.
class HostStock {
 public:
  explicit HostStock(const Driver& driver, Size piece = usual_piece)
      : driver_(driver), usual_piece_(piece) {}
  ~HostStock() { give_back(0); }
  HostStock(const HostStock&) = delete;
  HostStock& operator=(const HostStock&) = delete;

  // On that NUMA node, where the system has one.
  void be_near(int node) { node_ = node; }

  // So much in all is there, or on its way. OutOfMemory where the system has no addresses.
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

  Size bytes() const { return pieces_.empty() ? 0 : pieces_.back()->end(); }
  Size pinned_bytes() const;
  // The driver may have let go of what was pinned in a context that is gone.
  void look_again();
  // Until no more than that is left. Returns how much went.
  Size give_back(Size down_to);

 private:
  static constexpr Size usual_piece = 128 * MiB;

  struct Piece {
    Size begin;  // of all
    Size size;
    std::byte* bytes;
    bool is_pinned = false;
    CUcontext pinned_in = nullptr;
    Size end() const { return begin + size; }
  };
  struct Touching;

  Result<void> add_piece(Size size);
  void touch(const std::vector<Piece*>& pieces);
  static void* touch_some(void* touching);
  bool pin(Piece& piece);
  void release(Piece& piece);

  const Driver& driver_;
  const Size usual_piece_;
  int node_ = -1;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::shared_ptr<Touching> touching_;
  std::vector<pthread_t> threads_;
};

}  // namespace cuvmm
