// SPDX-License-Identifier: Apache-2.0
// A thread of the host with a current context, which does one piece of work at a time.
#pragma once

#include <cuda.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

namespace cuvmm::order {

class HostThread {
 public:
  explicit HostThread(CUcontext context);
  ~HostThread();  // waits for its work
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;

  void begin(std::function<void()> work);
  bool is_done() const { return state_.load() == State::Idle; }
  void finish() const;
  void run(std::function<void()> work) {
    begin(std::move(work));
    finish();
  }

 private:
  enum class State : int { Idle, Working, Ending };
  void work_until_the_end(CUcontext context);

  std::function<void()> work_;
  std::atomic<State> state_{State::Idle};
  std::thread thread_;
};

}  // namespace cuvmm::order
