// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "sim/backing.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Context;
class Pool;
class SharedCard;

class Device {
 public:
  // `ordinal`: as the program counts the devices that it sees. `number`: on the machine. `card` is
  // nullptr if the device is not shared with other processes.
  Device(int ordinal, int number, Size memory, SharedCard* card)
      : ordinal_(ordinal), number_(number), memory_(memory), card_(card) {}

  int ordinal() const { return ordinal_; }
  int number() const { return number_; }
  Size memory() const { return memory_; }
  SharedCard* card() const { return card_; }

  // Count bytes in and out. If fewer bytes are free, take() returns false and changes nothing.
  bool take(Size bytes);
  void give_back(Size bytes);
  Size used() const { return used_.load(); }  // by this process
  Size free() const;                          // available to any process
  Size peak() const { return peak_.load(); }

  Backing& backing() { return backing_; }

  // The primary context lives while it is retained. Its handle never changes: the CUDA runtime
  // requests it once, before the first retain, and keeps it across resets.
  struct Primary {
    std::shared_ptr<Context> context;
    int retains = 0;
    unsigned flags = 0;
    bool is_ending = false;
    Condition has_ended;
  };
  Primary primary;  // guarded by Process' lock
  CUcontext primary_handle() const {
    return reinterpret_cast<CUcontext>(const_cast<Primary*>(&primary));
  }

  // Created on first use.
  std::shared_ptr<Pool> default_pool;  // guarded by Process' lock
  std::shared_ptr<Pool> current_pool;  // guarded by Process' lock

 private:
  const int ordinal_;
  const int number_;
  const Size memory_;
  SharedCard* const card_;
  std::atomic<Size> used_{0};
  std::atomic<Size> peak_{0};
  Backing backing_;
};

}  // namespace cuvmm::sim
