// SPDX-License-Identifier: Apache-2.0
#include "lease/grants.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

namespace cuvmm::lease {
namespace {

constexpr std::size_t board_size = sizeof(node::GrantBoard);

// Returns nullptr if the file is no board. `known` is the address of the board that it replaces.
void* map_board(const Fd& file, int access, void* known) {
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) return nullptr;
  if (facts.st_size < static_cast<off_t>(board_size)) return nullptr;
  void* const memory = ::mmap(known, board_size, access,
                              MAP_SHARED | (known != nullptr ? MAP_FIXED : 0), file.number(), 0);
  if (memory == MAP_FAILED) return nullptr;
  // A forked child makes its own connection.
  ::madvise(memory, board_size, MADV_DONTFORK);
  return memory;
}

}  // namespace

bool Grants::take(const Fd& file) {
  void* const memory = map_board(file, PROT_READ | PROT_WRITE, board());
  if (memory == nullptr) return false;
  board_.store(static_cast<node::GrantBoard*>(memory), std::memory_order_release);
  return true;
}

void Grants::take_foreground(std::uint32_t slot, const Fd& file) {
  if (slot >= foregrounds_.size()) return;
  void* const known = const_cast<node::GrantBoard*>(foreground(slot));
  const void* const memory = map_board(file, PROT_READ, known);
  if (memory == nullptr) return;
  foregrounds_[slot].store(static_cast<const node::GrantBoard*>(memory), std::memory_order_release);
}

void Grants::lose() {
  node::GrantBoard* const known = board();
  if (known == nullptr) return;
  (void)::mmap(known, board_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0);
  ::madvise(known, board_size, MADV_DONTFORK);
}

}  // namespace cuvmm::lease
