// SPDX-License-Identifier: Apache-2.0
// A card of a given size, one context's windows over it, and what a test knows of its blocks.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "alloc/windows/windows.hpp"
#include "support/kernels.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {

// Work is complete when the test says so.
class GivenOrder final : public StreamOrder {
 public:
  bool is_before(const FreeTicket& freed, StreamId) const override { return is_done(freed); }
  bool is_done(const FreeTicket& freed) const override {
    const std::lock_guard holding{lock_};
    return freed.is_for_anyone() || freed.tick <= done_of(freed.stream);
  }
  void look(StreamId stream) override {
    const std::lock_guard holding{lock_};
    ++looks_;
    done_[stream] = std::max(done_of(stream), seen_when_looked_at_);
  }
  bool wait(const FreeTicket& freed, std::uint64_t until) override {
    const std::lock_guard holding{lock_};
    ++waits_;
    waited_until_ = until;
    if (waits_end_) done_[freed.stream] = std::max(done_of(freed.stream), freed.tick);
    return waits_end_;
  }

  void finish(StreamId stream, std::uint64_t tick) {
    const std::lock_guard holding{lock_};
    done_[stream] = tick;
  }
  // The device turns out to have reached this tick at the next look.
  void found_when_looked_at(std::uint64_t tick) { seen_when_looked_at_ = tick; }
  void let_waits_end() { waits_end_ = true; }
  int looks() const { return looks_; }
  int waits() const { return waits_; }
  std::uint64_t waited_until() const { return waited_until_; }  // at most, the last time

 private:
  std::uint64_t done_of(StreamId stream) const {
    const auto found = done_.find(stream);
    return found != done_.end() ? found->second : 0;
  }
  mutable std::mutex lock_;
  std::map<StreamId, std::uint64_t> done_;
  std::uint64_t seen_when_looked_at_ = 0;
  bool waits_end_ = false;
  int looks_ = 0;
  int waits_ = 0;
  std::uint64_t waited_until_ = 0;
};

// Always quiet, unless the test refuses.
class GivenQuiescence final : public Quiescence {
 public:
  bool is_ruled_out() const override { return is_ruled_out_; }
  bool begin(std::uint64_t until) override {
    ++begun_;
    begun_until_ = until;
    if (refuses_) return false;
    is_quiet_ = true;
    if (during_) during_();
    return true;
  }
  void end() override { is_quiet_ = false; }
  CopyBy copy_by() override { return {stream_, 0}; }

  void refuse() { refuses_ = true; }
  void rule_out() { is_ruled_out_ = true; }
  void during(std::function<void()> act) { during_ = std::move(act); }
  int begun() const { return begun_; }
  std::uint64_t begun_until() const { return begun_until_; }  // at most, the last time
  bool is_quiet() const { return is_quiet_; }
  CUstream stream() const { return stream_->handle(); }

 private:
  std::shared_ptr<CopyStream> stream_ = std::make_shared<CopyStream>(driver());
  std::function<void()> during_;
  bool refuses_ = false;
  bool is_ruled_out_ = false;
  std::atomic<bool> is_quiet_{false};
  std::atomic<int> begun_{0};
  std::uint64_t begun_until_ = 0;
};

class WindowsWorld {
 public:
  explicit WindowsWorld(const Driver& driver, Size memory,
                        const std::function<void(WindowSettings&)>& change = {});

  Windows& windows() { return *windows_; }
  Windows* operator->() { return windows_.get(); }

  WindowBlock& block(Size size);
  std::vector<WindowBlock*> blocks(std::size_t count, Size size);
  std::vector<WindowBlock*> fill_with(Size size);  // until there is no more memory
  // Frees these blocks and returns the bytes that had been granted.
  Size free_all(const std::vector<WindowBlock*>& blocks);
  Size free_every_second(std::vector<WindowBlock*>& blocks);
  Size free_about_half(std::vector<WindowBlock*>& blocks, std::uint64_t seed);

  // The largest block that can be allocated now, in whole granules.
  Size largest();
  // Sets how much may reside on the host from now on.
  void spill(Size most);
  Size physical() const { return store.counters(here).physical_in_use; }

  const Driver& driver;
  const Location here = Location::device(0);
  const Size granule;
  const std::shared_ptr<LocalBudget> budget;
  const std::shared_ptr<LocalBudget> spill_budget = std::make_shared<LocalBudget>(0);
  ChunkStore store;
  GivenOrder order;
  GivenQuiescence quiescence;

 private:
  std::unique_ptr<Windows> windows_;
};

std::vector<CUdeviceptr> addresses_of(const std::vector<WindowBlock*>& blocks);

// Marks both ends of a block, so that moved, torn or lost contents show.
void mark(const WindowBlock& block);
void mark(CUdeviceptr address, Size size, std::uint64_t seed);
void expect_marked(const WindowBlock& block);
void expect_marked(CUdeviceptr address, Size size, std::uint64_t seed);

// Checks the books, and that the driver agrees about the windows of these blocks.
void expect_true(const Windows& windows, const std::vector<WindowBlock*>& blocks);

class WindowsTest : public VmmTest {};

}  // namespace cuvmm::test
