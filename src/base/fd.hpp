// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cuvmm {

// A file descriptor that closes itself. Closing preserves errno, so that the reason of a failure
// survives the cleanup.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int number) : number_(number) {}
  Fd(Fd&& other) noexcept : number_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      number_ = other.release();
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { close(); }

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

  // Gives up the descriptor; the caller must close it.
  [[nodiscard]] int release() { return std::exchange(number_, -1); }

  void close() {
    if (number_ < 0) return;
    const int kept = errno;
    ::close(release());  // do not retry on EINTR: Linux has already closed it
    errno = kept;
  }

 private:
  int number_ = -1;
};

}  // namespace cuvmm
