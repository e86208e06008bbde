// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <unistd.h>

namespace cuvmm {

// Keeps the calling thread from being cancelled (pthread_cancel) in waits and writes of cuvmm's,
// where the driver's call would not have been a cancellation point.
class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

inline void rest_us(useconds_t length) {
  const NotCancelled whole;
  ::usleep(length);
}

}  // namespace cuvmm
