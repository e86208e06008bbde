// SPDX-License-Identifier: Apache-2.0
#include "base/own_fd.hpp"

#include <fcntl.h>

#include "base/made_once.hpp"

namespace cuvmm {

Fd move_to_high_number(Fd file) {
  constexpr int least_number = 200;
  const int kept = errno;
  Fd moved{::fcntl(file.number(), F_DUPFD_CLOEXEC, least_number)};
  errno = kept;
  return moved.is_open() ? std::move(moved) : std::move(file);
}

OwnFd::OwnFd(Fd file) : file_(move_to_high_number(std::move(file))) {
  if (file_.is_open()) identity_ = FileIdentity::of(file_.number());
}

OwnFd::OwnFd(OwnFd&& other) noexcept
    : file_(std::move(other.file_)), identity_(std::exchange(other.identity_, {})) {}

OwnFd& OwnFd::operator=(OwnFd&& other) noexcept {
  if (this == &other) return *this;
  close();
  file_ = std::move(other.file_);
  identity_ = std::exchange(other.identity_, {});
  return *this;
}

bool OwnFd::is_open() const {
  return file_.is_open() && identity_ && FileIdentity::of(file_.number()) == identity_;
}

const Fd& OwnFd::file() const {
  static constinit MadeOnce<const Fd> closed;
  return is_open() ? file_ : closed.get();
}

std::optional<OwnFd::Made> OwnFd::made() const {
  if (!file_.is_open() || !identity_) return {};
  return Made{file_.number(), *identity_};
}

void OwnFd::close() {
  if (is_open()) return file_.close();
  [[maybe_unused]] const int not_ours_to_close = file_.release();
}

}  // namespace cuvmm
