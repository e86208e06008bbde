// SPDX-License-Identifier: Apache-2.0
#include "daemon/use_poll.hpp"

#include <sys/eventfd.h>

#include <utility>

#include "base/start_thread.hpp"

namespace cuvmm::daemon {

Result<std::unique_ptr<UsePoll>> UsePoll::begin(observe::Nvml nvml,
                                                std::vector<observe::NodeDevice> devices) {
  std::unique_ptr<UsePoll> poll{new UsePoll{std::move(nvml), std::move(devices)}};
  poll->answered_ = Fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  poll->has_thread_ =
      poll->answered_.is_open() && start_thread(&poll->thread_, &UsePoll::run, poll.get()) == 0;
  if (!poll->has_thread_) return share::system_error("watch the devices");
  return poll;
}

UsePoll::~UsePoll() {
  if (!has_thread_) return;
  state_.store(Ends);
  wake_all(state_);
  ::pthread_join(thread_, nullptr);
}

bool UsePoll::ask() {
  std::uint32_t expected = Rests;
  if (!state_.compare_exchange_strong(expected, Asked)) return false;
  wake_all(state_);
  return true;
}

std::vector<UsePoll::Seen> UsePoll::take_answer() {
  std::uint64_t count = 0;
  static_cast<void>(::read(answered_.number(), &count, sizeof count));
  if (state_.load() != Answered) return {};
  std::vector<Seen> seen = std::exchange(seen_, {});
  state_.store(Rests);
  return seen;
}

std::vector<UsePoll::Seen> UsePoll::look() const {
  std::vector<Seen> seen;
  for (const observe::NodeDevice& device : devices_) {
    if (auto use = nvml_.use(device.index)) seen.push_back({device.index, std::move(*use)});
  }
  return seen;
}

void* UsePoll::run(void* poll) {
  ::pthread_setname_np(::pthread_self(), "cuvmmd-nvml");
  static_cast<UsePoll*>(poll)->answer();
  return nullptr;
}

void UsePoll::answer() {
  for (;;) {
    const std::uint32_t state = state_.load();
    if (state == Ends) return;
    if (state != Asked) {
      wait_while(state_, state, Duration{1'000'000});
      continue;
    }
    seen_ = look();
    std::uint32_t expected = Asked;
    if (!state_.compare_exchange_strong(expected, Answered)) return;
    const std::uint64_t one = 1;
    static_cast<void>(::write(answered_.number(), &one, sizeof one));
  }
}

}  // namespace cuvmm::daemon
