// SPDX-License-Identifier: Apache-2.0
#include "order/host_thread.hpp"

#include <utility>

#include "order/report.hpp"

namespace cuvmm::order {

HostThread::HostThread(CUcontext context) {
  thread_ = std::thread{[this, context] { work_until_the_end(context); }};
}

HostThread::~HostThread() {
  finish();
  state_.store(State::Ending);
  state_.notify_all();
  thread_.join();
}

void HostThread::begin(std::function<void()> work) {
  work_ = std::move(work);
  state_.store(State::Working);
  state_.notify_all();
}

void HostThread::finish() const {
  while (state_.load() == State::Working) state_.wait(State::Working);
}

void HostThread::work_until_the_end(CUcontext context) {
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  for (;;) {
    state_.wait(State::Idle);
    if (state_.load() == State::Ending) return;
    work_();
    state_.store(State::Idle);
    state_.notify_all();
  }
}

}  // namespace cuvmm::order
