// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/own_fd.hpp"

namespace cuvmm {

// A descriptor that forked children close. If a child that never calls exec kept its parent's
// descriptors, an importer that ends would seem to live on in its child, and clients would keep
// connecting to a listener that is gone.
class ForkClosedFd {
 public:
  ForkClosedFd() = default;
  explicit ForkClosedFd(Fd file);
  ForkClosedFd(ForkClosedFd&&) noexcept = default;
  ForkClosedFd& operator=(ForkClosedFd&& other) noexcept;
  ~ForkClosedFd() { close(); }

  // Whether it is open and still ours: closed neither by the program nor by a fork.
  bool is_open() const { return file_.is_open(); }
  int number() const { return file_.number(); }
  // For use in a call; a closed Fd if it is no longer ours.
  const Fd& file() const { return file_.file(); }
  void close();

 private:
  OwnFd file_;
};

}  // namespace cuvmm
