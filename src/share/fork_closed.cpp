// SPDX-License-Identifier: Apache-2.0
#include "share/fork_closed.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace cuvmm::share {
namespace {

// More than that are kept by a child, which costs it some waiting and nobody a failure. No lock: a
// child may not take one.
constexpr std::size_t most_remembered = 512;
constexpr int none = -1;

struct Remembered {
  std::atomic<int> descriptor{none};
};
constinit std::array<Remembered, most_remembered> all;

void close_all() {
  for (Remembered& one : all) {
    const int descriptor = one.descriptor.exchange(none);
    if (descriptor != none) ::close(descriptor);
  }
}

}  // namespace

void close_in_forked_children(int descriptor) {
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true)) pthread_atfork(nullptr, nullptr, &close_all);
  for (Remembered& one : all) {
    int expected = none;
    if (one.descriptor.compare_exchange_strong(expected, descriptor)) return;
  }
}

void forget_for_forked_children(int descriptor) {
  if (descriptor < 0) return;
  for (Remembered& one : all) {
    int expected = descriptor;
    if (one.descriptor.compare_exchange_strong(expected, none)) return;
  }
}

}  // namespace cuvmm::share
