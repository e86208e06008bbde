// SPDX-License-Identifier: Apache-2.0
#include "vmm/kept_file.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/no_forks.hpp"

namespace cuvmm {
namespace {

constinit std::atomic<int> kept_by_the_process{0};
constinit std::array<std::atomic<const ForkClosedFd*>, KeptFile::most_kept> files{};

// The rest is for the program.
int most_for_the_process() {
  constexpr rlim_t part = 8;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / part, KeptFile::most_kept));
}

bool may_keep_one_more() {
  if (kept_by_the_process.fetch_add(1) < most_for_the_process()) return true;
  kept_by_the_process.fetch_sub(1);
  return false;
}

// The caller may keep one more, so there is a free place.
std::int8_t put(const ForkClosedFd* file) {
  for (std::int8_t place = 0;;
       place = static_cast<std::int8_t>((place + 1) % KeptFile::most_kept)) {
    const ForkClosedFd* nobody = nullptr;
    if (files[place].compare_exchange_strong(nobody, file, std::memory_order_acq_rel)) return place;
  }
}

void clear(std::int8_t place) {
  const std::unique_ptr<const ForkClosedFd> file{files[place].exchange(nullptr)};
  kept_by_the_process.fetch_sub(1);
}

// Forks wait meanwhile: a child would keep a descriptor that it does not know of, and the memory.
Result<ForkClosedFd> export_of(const Chunk& chunk) {
  const NoForks until_it_is_known;
  return ForkClosedFd{TRY(chunk.export_fd())};
}

}  // namespace

void KeptFile::close() {
  const std::int8_t place = place_.exchange(none);
  if (place != none) clear(place);
}

Result<bool> KeptFile::keep(const Chunk& chunk) {
  if (place_.load(std::memory_order_acquire) != none) return true;
  if (!may_keep_one_more()) return false;
  auto exported = export_of(chunk);
  if (!exported.ok()) {
    kept_by_the_process.fetch_sub(1);
    return exported.error();
  }
  const std::int8_t place = put(new ForkClosedFd{std::move(*exported)});
  std::int8_t nowhere = none;
  const bool is_first = place_.compare_exchange_strong(nowhere, place, std::memory_order_acq_rel);
  if (!is_first) clear(place);
  return true;
}

Result<SentFile> KeptFile::of(const Chunk& chunk) {
  if (TRY(keep(chunk))) {
    const ForkClosedFd* const kept = files[place_.load(std::memory_order_acquire)].load();
    const int number = kept->number();
    if (number >= 0) return SentFile{.number = number, .for_this_time = {}};
  }
  ForkClosedFd exported = TRY(export_of(chunk));
  const int number = exported.number();
  return SentFile{.number = number, .for_this_time = std::move(exported)};
}

}  // namespace cuvmm
