// SPDX-License-Identifier: Apache-2.0
// The node service's part in sharing device time, played by a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "driver/cuda.hpp"
#include "lease/tenant.hpp"
#include "node/grant_board.hpp"
#include "trace/futex.hpp"

namespace cuvmm::test {

// A board as the service makes one, with the given device second.
class BoardFile {
 public:
  explicit BoardFile(const CUuuid& device) : file_(::memfd_create("board", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.number(), sizeof(node::GrantBoard)), 0);
    void* const memory = ::mmap(nullptr, sizeof(node::GrantBoard), PROT_READ | PROT_WRITE,
                                MAP_SHARED, file_.number(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    board_ = static_cast<node::GrantBoard*>(memory);
    std::copy_n(reinterpret_cast<const std::uint8_t*>(device.bytes), words().device.size(),
                words().device.begin());
  }
  BoardFile(const BoardFile&) = delete;
  BoardFile& operator=(const BoardFile&) = delete;
  ~BoardFile() { ::munmap(board_, sizeof(node::GrantBoard)); }

  const Fd& file() const { return file_; }
  node::GrantBoard& board() const { return *board_; }
  node::GrantWords& words() const { return board_->devices[1]; }

  // Makes a new decision about the process's grant, as the service does. The service counts as live
  // for an hour, since a test on a busy machine may not beat as often as the service.
  void decide(node::TimeGrant next) {
    constexpr std::uint64_t an_hour = 3'600'000'000'000;
    board_->beat_ns.store(now_ns() + an_hour);
    words().grant.store(node::grant_word(++last_number_, next));
    board_->changes.fetch_add(1);
    wake_all_shared(words().grant);
    wake_all_shared(board_->changes);
  }
  // Whether the process has reported that nothing of it is in flight since it lost the grant.
  bool is_drained() const { return words().drained.load() == words().grant.load(); }

 private:
  Fd file_;
  node::GrantBoard* board_ = nullptr;
  std::uint32_t last_number_ = 0;
};

// A program whose memory nobody leases.
class NoTenant final : public lease::Tenant {
 public:
  Size cached(const LeasedBudget& /*budget*/) override { return 0; }
  void free_cache(LeasedBudget& /*budget*/, Size /*wanted*/) override {}
  Size cold(const LeasedBudget& /*budget*/) override { return 0; }
  void move_out_cold(LeasedBudget& /*budget*/, Size /*wanted*/, Duration /*within*/) override {}
  bool is_idle() override { return false; }
  Result<void> pause(Duration /*within*/, const share::Fellows& /*fellows*/,
                     const std::function<void()>& /*has_released*/) override {
    return {};
  }
  Result<void> resume(Come /*how*/) override { return {}; }
  void return_ahead() override {}
  void leave_again() override {}
  bool is_paused() const override { return false; }
  bool is_paused_by_command() const override { return false; }
  bool has_held_calls() const override { return false; }
  bool is_off_devices() const override { return false; }
  share::ControlAnswer agree(const share::ControlRequest& /*request*/) override { return {}; }
  void wait_outside(const std::function<void()>& wait) override { wait(); }
};

}  // namespace cuvmm::test
