// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Counts the threads that briefly hold memory of a device where no other thread can find it: a
// request that gathers chunks and may put them back, or a release under way. If another thread
// finds too little in the meantime, the device is not necessarily full.
class MemoryInHand {
 public:
  class Holder {
   public:
    explicit Holder(MemoryInHand& all);
    ~Holder() { all_.holders_.fetch_sub(1); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    MemoryInHand& all_;
  };

  // Begin to watch while this thread holds nothing.
  class Watch {
   public:
    explicit Watch(const MemoryInHand& all);
    // Whether other threads have held any since the watch began.
    bool others_held_any() const;

   private:
    const MemoryInHand& all_;
    const bool held_;
    const std::uint64_t begun_;
    const std::uint64_t begun_here_;
  };

 private:
  std::atomic<std::uint64_t> holders_{0};
  std::atomic<std::uint64_t> begun_{0};
};

}  // namespace cuvmm
