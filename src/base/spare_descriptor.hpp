// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include "base/fd.hpp"

namespace cuvmm {

// A descriptor for the moment when a server has no others left. Otherwise epoll would report the
// waiting caller forever.
class SpareDescriptor {
 public:
  SpareDescriptor() : spare_(opened()) {}

  // Accepts a caller and hangs up. False if nobody waits.
  bool turn_away(int listening) {
    spare_.close();
    Fd caller{::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC)};
    const bool was_somebody = caller.is_open();
    caller.close();
    spare_ = opened();
    return was_somebody;
  }

 private:
  static Fd opened() { return Fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

  Fd spare_;
};

}  // namespace cuvmm
