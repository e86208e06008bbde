// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm::share {

// The error in errno.
inline Error system_error(const char* doing, const char* subject = "") {
  return {
      .kind = ErrorKind::SystemFailed, .system_code = errno, .doing = doing, .subject = subject};
}

// The descriptor that a system call has returned, or the error in errno.
inline Result<Fd> opened_fd(int descriptor, const char* doing) {
  if (descriptor < 0) return system_error(doing);
  return Fd{descriptor};
}

inline Error other_side_has_gone(const char* doing) {
  return {.kind = ErrorKind::SystemFailed,
          .system_code = ECONNRESET,
          .doing = doing,
          .subject = "the other process has gone"};
}
inline bool says_gone(const Error& error) {
  return error.kind == ErrorKind::SystemFailed && error.system_code == ECONNRESET;
}

// When a wait ends, on the clock of now_us(). Every wait has an end: a wait without one cannot be
// told from a hang.
struct Deadline {
  std::uint64_t at_us = 0;

  static Deadline after(Duration time) {
    return {now_us() + static_cast<std::uint64_t>(time.count() > 0 ? time.count() : 0)};
  }
  // For poll(2): rounded up, so that it does not spin through the last millisecond.
  int milliseconds_left() const {
    const std::uint64_t now = now_us();
    if (now >= at_us) return 0;
    const std::uint64_t left = (at_us - now + 999) / 1000;
    return left > 1'000'000 ? 1'000'000 : static_cast<int>(left);
  }
  bool is_over() const { return now_us() >= at_us; }
};

}  // namespace cuvmm::share
