// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "observe/devices.hpp"
#include "trace/futex.hpp"

namespace cuvmm::daemon {

// Asks NVML about the use of each device, on a thread of its own: an answer may take milliseconds,
// during which the service could not grant device time.
class UsePoll {
 public:
  struct Seen {
    std::uint32_t device = 0;
    observe::DeviceUse use;
  };

  static Result<std::unique_ptr<UsePoll>> begin(observe::Nvml nvml,
                                                std::vector<observe::NodeDevice> devices);
  ~UsePoll();
  UsePoll(const UsePoll&) = delete;
  UsePoll& operator=(const UsePoll&) = delete;

  // Returns false, and does nothing, while an earlier question has no answer.
  bool ask();
  // Readable when there is an answer.
  int descriptor() const { return answered_.number(); }
  std::vector<Seen> take_answer();
  // Asks on the calling thread. Call only before the first ask().
  std::vector<Seen> look() const;

 private:
  enum State : std::uint32_t { Rests, Asked, Answered, Ends };

  UsePoll(observe::Nvml nvml, std::vector<observe::NodeDevice> devices)
      : nvml_(std::move(nvml)), devices_(std::move(devices)) {}
  static void* run(void* poll);
  void answer();

  const observe::Nvml nvml_;
  const std::vector<observe::NodeDevice> devices_;
  Fd answered_;
  FutexWord state_{Rests};
  std::vector<Seen> seen_;  // owned by the thread in state Asked, otherwise by the caller
  bool has_thread_ = false;
  pthread_t thread_{};
};

}  // namespace cuvmm::daemon
