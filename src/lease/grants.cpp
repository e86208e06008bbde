// SPDX-License-Identifier: Apache-2.0
#include "lease/grants.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

namespace cuvmm::lease {
namespace {

constexpr std::size_t board_size = sizeof(node::GrantBoard);

}  // namespace

bool Grants::take(const Fd& file) {
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) return false;
  if (facts.st_size < static_cast<off_t>(board_size)) return false;
  node::GrantBoard* const known = board();
  void* const memory = ::mmap(known, board_size, PROT_READ | PROT_WRITE,
                              MAP_SHARED | (known != nullptr ? MAP_FIXED : 0), file.number(), 0);
  if (memory == MAP_FAILED) return false;
  // A forked child makes its own connection.
  ::madvise(memory, board_size, MADV_DONTFORK);
  board_.store(static_cast<node::GrantBoard*>(memory), std::memory_order_release);
  return true;
}

void Grants::lose() {
  node::GrantBoard* const known = board();
  if (known == nullptr) return;
  (void)::mmap(known, board_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0);
  ::madvise(known, board_size, MADV_DONTFORK);
}

}  // namespace cuvmm::lease
