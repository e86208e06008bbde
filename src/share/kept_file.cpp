// SPDX-License-Identifier: Apache-2.0
#include "share/kept_file.hpp"

#include "share/fork_closed.hpp"

namespace cuvmm::share {
namespace {

constinit std::atomic<int> kept_by_the_process{0};

bool may_keep_one_more() {
  if (kept_by_the_process.fetch_add(1) < KeptFile::most_kept) return true;
  kept_by_the_process.fetch_sub(1);
  return false;
}

}  // namespace

KeptFile::~KeptFile() {
  const int number = number_.load();
  if (number < 0) return;
  kept_by_the_process.fetch_sub(1);
  if (owner_.load() != ::getpid()) return;
  forget_for_forked_children(number);
  Fd{number}.close();
}

Result<SentFile> KeptFile::of(const ChunkRef& chunk) {
  const int before = number_.load(std::memory_order_acquire);
  if (before >= 0 && owner_.load() == ::getpid())
    return SentFile{.number = before, .for_this_time = {}};
  Fd exported = TRY(chunk.export_fd());
  const int number = exported.number();
  if (before >= 0 || !may_keep_one_more()) {
    return SentFile{.number = number, .for_this_time = std::move(exported)};
  }
  owner_.store(::getpid());
  int expected = -1;
  if (!number_.compare_exchange_strong(expected, number, std::memory_order_acq_rel)) {
    kept_by_the_process.fetch_sub(1);
    return SentFile{.number = number, .for_this_time = std::move(exported)};
  }
  close_in_forked_children(number);
  static_cast<void>(exported.release());
  return SentFile{.number = number, .for_this_time = {}};
}

}  // namespace cuvmm::share
