// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/own_fd.hpp"

namespace cuvmm::share {

// A descriptor of ours that forked children do not keep. One that starts no other program would
// keep its parent's: an importer that ends would seem to live on in its child, and connections
// would wait for a listener that is gone.
class ForkClosedFd {
 public:
  ForkClosedFd() = default;
  explicit ForkClosedFd(Fd file);
  ForkClosedFd(ForkClosedFd&&) noexcept = default;
  ForkClosedFd& operator=(ForkClosedFd&& other) noexcept;
  ~ForkClosedFd() { close(); }

  // And still ours: neither the program nor the fork has closed it.
  bool is_open() const { return file_.is_open(); }
  int number() const { return file_.number(); }
  // For a call, or a closed one.
  const Fd& file() const { return file_.file(); }
  void close();

 private:
  OwnFd file_;
};

}  // namespace cuvmm::share
