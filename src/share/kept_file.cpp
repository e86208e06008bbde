// SPDX-License-Identifier: Apache-2.0
#include "share/kept_file.hpp"

#include <memory>

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
  const std::unique_ptr<const ForkClosedFd> kept{kept_.load()};
  if (kept != nullptr) kept_by_the_process.fetch_sub(1);
}

Result<SentFile> KeptFile::of(const ChunkRef& chunk) {
  const auto for_this_time = [](Fd exported) {
    const int number = exported.number();
    return SentFile{.number = number, .for_this_time = std::move(exported)};
  };
  const ForkClosedFd* const before = kept_.load(std::memory_order_acquire);
  if (before != nullptr) {
    const int number = before->number();
    if (number >= 0) return SentFile{.number = number, .for_this_time = {}};
  }
  Fd exported = TRY(chunk.export_fd());
  if (before != nullptr || !may_keep_one_more()) return for_this_time(std::move(exported));
  auto keeping = std::make_unique<ForkClosedFd>(std::move(exported));
  const int number = keeping->number();
  const ForkClosedFd* nobody = nullptr;
  if (!kept_.compare_exchange_strong(nobody, keeping.get(), std::memory_order_acq_rel)) {
    kept_by_the_process.fetch_sub(1);  // another thread has cached one first
    return for_this_time(TRY(chunk.export_fd()));
  }
  static_cast<void>(keeping.release());
  return SentFile{.number = number, .for_this_time = {}};
}

}  // namespace cuvmm::share
