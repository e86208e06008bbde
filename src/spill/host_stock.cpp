// SPDX-License-Identifier: Apache-2.0
#include "spill/host_stock.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "driver/current_context.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr Size unit = 2 * MiB;  // the huge page size

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Makes the kernel provide the memory now, not while the driver pins it. Contents stay.
void touch_all(std::byte* bytes, Size size) {
  if (::madvise(bytes, size, MADV_POPULATE_WRITE) == 0) return;
  constexpr Size smallest_unit = 4096;
  for (Size at = 0; at < size; at += smallest_unit) {
    volatile std::byte& touched = bytes[at];
    touched = touched;
  }
}

void prefer_node(void* bytes, Size size, int node) {
  constexpr int preferred = 1;  // MPOL_PREFERRED
  unsigned long mask = 0;
  constexpr auto bits = static_cast<int>(sizeof mask * 8);
  if (node < 0 || node >= bits) return;
  mask = 1ul << node;
  ::syscall(SYS_mbind, bytes, size, preferred, &mask, bits + 1, 0);
}

CUresult unpin_and_unmap(const Driver& driver, CUcontext context, std::byte* bytes, Size size) {
  const InContext in_context{driver, context};
  // If its context is gone, nothing is pinned any more.
  if (in_context.ok()) {
    const CUresult answer = driver.cuMemHostUnregister(bytes);
    if (answer != CUDA_SUCCESS && answer != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return answer;
  }
  ::munmap(bytes, size);
  return CUDA_SUCCESS;
}

}  // namespace

Result<void> HostStock::provide(Size bytes) {
  if (bytes <= this->bytes()) return {};
  Size missing = round_up(bytes - this->bytes(), unit);
  // Commits all or nothing: otherwise two processes with large requests could each end up with
  // half.
  if (budget_ != nullptr) {
    Commitment right = TRY(budget_->commit(missing));
    right.keep();
  }
  Result<void> added;
  while (added.ok() && missing != 0) {
    const Size size = std::min(usual_piece_, missing);
    missing -= size;
    added = add_piece(size, right_to(size));
  }
  const Commitment not_used = right_to(missing);
  return added;
}

// Takes over part of what has been committed.
Commitment HostStock::right_to(Size size) const {
  return budget_ != nullptr ? Commitment{*budget_, size} : Commitment{};
}

Result<void> HostStock::add_piece(Size size, Commitment right) {
  // Leaves room to align the beginning to a unit.
  const Size asked = size + unit;
  void* const got =
      ::mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) {
    return Error{.kind = ErrorKind::OutOfMemory, .doing = "take memory of the host", .asked = size};
  }
  auto* const first = static_cast<std::byte*>(got);
  auto* const begin = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<Size>(first), unit));
  if (begin != first) ::munmap(first, static_cast<Size>(begin - first));
  const auto behind = static_cast<Size>(first + asked - (begin + size));
  if (behind != 0) ::munmap(begin + size, behind);
  ::madvise(begin, size, MADV_HUGEPAGE);
  ::madvise(begin, size, MADV_DONTFORK);
  prefer_node(begin, size, node_);
  pieces_.push_back(std::unique_ptr<Piece>{new Piece{bytes(), size, begin, std::move(right)}});
  return {};
}

HostStock::Piece& HostStock::piece_at(Size offset) {
  const auto above = std::upper_bound(
      pieces_.begin(), pieces_.end(), offset,
      [](Size wanted, const std::unique_ptr<Piece>& piece) { return wanted < piece->begin; });
  return **std::prev(above);
}

HostStock::Part HostStock::at(Size offset) {
  Piece& piece = piece_at(offset);
  piece.is_touched = true;
  return {piece.bytes + (offset - piece.begin), piece.end() - offset, piece.is_pinned()};
}

HostStock::Part HostStock::pinned_at(Size offset) {
  Piece& piece = piece_at(offset);
  if (!piece.is_pinned()) pin(piece);
  return at(offset);
}

bool HostStock::pin_next() {
  const auto next = std::find_if(pieces_.begin(), pieces_.end(),
                                 [](const auto& piece) { return !piece->is_pinned(); });
  if (next == pieces_.end()) return false;
  pin(**next);
  return (*next)->is_pinned();
}

void HostStock::pin(Piece& piece) {
  const CUcontext context = current_context(driver_);
  if (context == nullptr) return;  // it could not be unpinned
  piece.is_touched = true;
  touch_all(piece.bytes, piece.size);
  const CUresult answer =
      driver_.cuMemHostRegister(piece.bytes, piece.size, CU_MEMHOSTREGISTER_PORTABLE);
  if (answer == CUDA_SUCCESS) piece.pinned_in = context;
}

void HostStock::look_again() {
  for (const auto& piece : pieces_) {
    unsigned flags = 0;
    if (!piece->is_pinned()) continue;
    const CUresult answer = driver_.cuMemHostGetFlags(&flags, piece->bytes);
    if (answer == CUDA_ERROR_INVALID_VALUE) piece->pinned_in = nullptr;
  }
}

Size HostStock::pinned_bytes() const {
  Size bytes = 0;
  for (const auto& piece : pieces_) bytes += piece->is_pinned() ? piece->size : 0;
  return bytes;
}

Size HostStock::touched_bytes() const {
  Size bytes = 0;
  for (const auto& piece : pieces_) bytes += piece->is_touched ? piece->size : 0;
  return bytes;
}

Size HostStock::give_back(Size down_to) {
  Size gone = 0;
  while (bytes() > down_to) {
    gone += pieces_.back()->size;
    release(*pieces_.back());
    pieces_.pop_back();
  }
  return gone;
}

void HostStock::release(Piece& piece) {
  if (!piece.is_pinned()) {
    ::munmap(piece.bytes, piece.size);
    return;
  }
  // The addresses must not be reused while the driver still has them registered.
  cuvmm::release_or_defer(Deferred::Handle, [driver = &driver_, context = piece.pinned_in,
                                             bytes = piece.bytes, size = piece.size] {
    return unpin_and_unmap(*driver, context, bytes, size);
  });
}

}  // namespace cuvmm
