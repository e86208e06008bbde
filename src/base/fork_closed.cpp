// SPDX-License-Identifier: Apache-2.0
#include "base/fork_closed.hpp"

#include <array>
#include <atomic>

#include "base/in_children.hpp"

namespace cuvmm {
namespace {

// A child keeps descriptors beyond this many, which costs it some waiting but breaks nothing. There
// is no lock, because a forked child must not take one.
constexpr std::size_t most_remembered = 512;
constexpr int none = 0;  // so that the table is all zeros and takes no space in the library's file
constexpr int being_written = -1;
constexpr int entry_of(int descriptor) {
  return descriptor + 1;
}

// Remembers the file as well: the number alone may by now be a descriptor of the program's.
struct Remembered {
  std::atomic<int> entry{none};
  std::atomic<dev_t> device{0};
  std::atomic<ino_t> inode{0};
  std::atomic<bool> is_marked{false};

  bool is(const FileIdentity& file) const {
    return device.load() == file.device && inode.load() == file.inode;
  }
};
constinit std::array<Remembered, most_remembered> all;

void close_all() {
  for (Remembered& one : all) {
    const int entry = one.entry.exchange(none);
    if (entry == none || entry == being_written) continue;
    const OwnFd::Made made{.number = entry - 1,
                           .file = {one.device.load(), one.inode.load()},
                           .is_marked = one.is_marked.load()};
    if (made.is_still_open()) ::close(made.number);
  }
}

constinit InChildren closes_all{&close_all};

void remember(const OwnFd::Made& made) {
  closes_all.ensure();
  for (Remembered& one : all) {
    int expected = none;
    if (!one.entry.compare_exchange_strong(expected, being_written)) continue;
    one.device.store(made.file.device);
    one.inode.store(made.file.inode);
    one.is_marked.store(made.is_marked);
    one.entry.store(entry_of(made.number));
    return;
  }
}

void forget(const OwnFd::Made& made) {
  for (Remembered& one : all) {
    int expected = entry_of(made.number);
    if (one.entry.load() != expected || !one.is(made.file)) continue;
    if (one.entry.compare_exchange_strong(expected, none)) return;
  }
}

}  // namespace

ForkClosedFd::ForkClosedFd(Fd file) : file_(std::move(file)) {
  if (const auto made = file_.made()) remember(*made);
}

ForkClosedFd& ForkClosedFd::operator=(ForkClosedFd&& other) noexcept {
  if (this == &other) return *this;
  close();
  file_ = std::move(other.file_);
  return *this;
}

// Forgets the number before closing it, since the next file opened may get the same one.
void ForkClosedFd::close() {
  if (const auto made = file_.made()) forget(*made);
  file_.close();
}

}  // namespace cuvmm
