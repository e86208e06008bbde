// SPDX-License-Identifier: Apache-2.0
#include "base/own_fd.hpp"

#include <fcntl.h>

#include "base/made_once.hpp"

namespace cuvmm {
namespace {

constexpr int mark_signal = 61;  // no program is likely to have chosen the same one

// Preserves errno, since closing a descriptor on an error path must not change it.
bool has_mark(int number) {
  const int kept = errno;
  const int signal = ::fcntl(number, F_GETSIG);
  errno = kept;
  return signal == mark_signal;
}

// False if the system refuses to set the mark, or to read it.
bool mark(int number) {
  const int kept = errno;
  const bool is_set = ::fcntl(number, F_SETSIG, mark_signal) == 0;
  errno = kept;
  return is_set && has_mark(number);
}

}  // namespace

Fd move_to_high_number(Fd file) {
  constexpr int least_number = 200;
  const int kept = errno;
  Fd moved{::fcntl(file.number(), F_DUPFD_CLOEXEC, least_number)};
  errno = kept;
  return moved.is_open() ? std::move(moved) : std::move(file);
}

OwnFd::OwnFd(Fd file) : file_(move_to_high_number(std::move(file))) {
  const int number = file_.number();
  if (!file_.is_open()) return;
  const auto identity = FileIdentity::of(number);
  if (identity) made_ = {.number = number, .file = *identity, .is_marked = mark(number)};
}

OwnFd::OwnFd(OwnFd&& other) noexcept
    : file_(std::move(other.file_)), made_(std::exchange(other.made_, {})) {}

OwnFd& OwnFd::operator=(OwnFd&& other) noexcept {
  if (this == &other) return *this;
  close();
  file_ = std::move(other.file_);
  made_ = std::exchange(other.made_, {});
  return *this;
}

bool OwnFd::Made::is_still_open() const {
  return FileIdentity::of(number) == file && (!is_marked || has_mark(number));
}

bool OwnFd::is_open() const {
  return file_.is_open() && made_ && made_->is_still_open();
}

const Fd& OwnFd::file() const {
  static constinit MadeOnce<const Fd> closed;
  return is_open() ? file_ : closed.get();
}

void OwnFd::close() {
  if (is_open()) return file_.close();
  [[maybe_unused]] const int not_ours_to_close = file_.release();
}

}  // namespace cuvmm
