// SPDX-License-Identifier: Apache-2.0
#include "spill/host_stock.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/start_thread.hpp"
#include "driver/current_context.hpp"
#include "trace/futex.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr Size unit = 2 * MiB;   // the huge page size
constexpr Size slab = 16 * MiB;  // what one thread touches at a time
constexpr std::size_t threads_at_most = 12;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Makes the kernel clear the memory now, not while the driver pins it.
void touch_all(std::byte* bytes, Size size) {
  if (::madvise(bytes, size, MADV_POPULATE_WRITE) == 0) return;
  constexpr Size smallest_unit = 4096;
  for (Size at = 0; at < size; at += smallest_unit) {
    *const_cast<volatile std::byte*>(bytes + at) = std::byte{0};
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

// The slabs to touch; each thread takes the next free one.
struct HostStock::Touching {
  struct Slab {
    std::byte* bytes;
    Size size;
  };
  std::vector<Slab> slabs;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  // Set once all threads exist: creating one would wait for page faults of those already touching.
  FutexWord may_begin{0};

  void work() {
    for (;;) {
      const std::size_t mine = next.fetch_add(1);
      if (mine >= slabs.size()) return;
      touch_all(slabs[mine].bytes, slabs[mine].size);
      done.fetch_add(1);
    }
  }
};

Result<void> HostStock::provide(Size bytes) {
  if (bytes <= this->bytes()) return {};
  const std::size_t had = pieces_.size();
  Size missing = round_up(bytes - this->bytes(), unit);
  // Commits all or nothing, so that of two processes that want much, each does not end up with
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
  std::vector<Piece*> fresh;
  for (std::size_t i = had; i < pieces_.size(); ++i) fresh.push_back(pieces_[i].get());
  touch(fresh);
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

void HostStock::touch(const std::vector<Piece*>& pieces) {
  stop_touching();
  auto left = touching_ != nullptr ? std::move(touching_->slabs) : std::vector<Touching::Slab>{};
  touching_ = std::make_shared<Touching>();
  touching_->slabs = std::move(left);
  Size all = 0;
  for (const Touching::Slab& one : touching_->slabs) all += one.size;
  for (Piece* piece : pieces) {
    for (Size at = 0; at < piece->size; at += slab) {
      touching_->slabs.push_back({piece->bytes + at, std::min(slab, piece->size - at)});
    }
    all += piece->size;
  }
  const auto processors = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  std::size_t wanted = std::min(
      {threads_at_most, std::max<std::size_t>(processors * 3 / 4, 1), touching_->slabs.size()});
  if (all <= slab) wanted = 0;
  for (; wanted > 0; --wanted) {
    pthread_t thread{};
    if (start_thread(&thread, &touch_some, touching_.get()) != 0) break;
    threads_.push_back(thread);
  }
  if (threads_.empty()) return touching_->work();
  touching_->may_begin.store(1);
  wake_all(touching_->may_begin);
}

void* HostStock::touch_some(void* touching) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-touch");
  auto& all = *static_cast<Touching*>(touching);
  while (all.may_begin.load() == 0) wait_while(all.may_begin, 0, std::chrono::milliseconds{100});
  all.work();
  return nullptr;
}

void HostStock::wait_for_all() {
  for (const pthread_t thread : threads_) ::pthread_join(thread, nullptr);
  threads_.clear();
}

bool HostStock::is_on_its_way() const {
  return !threads_.empty() && touching_->done.load() < touching_->slabs.size();
}

void HostStock::stop_touching() {
  if (touching_ == nullptr) return;
  auto& slabs = touching_->slabs;
  const std::size_t taken = std::min(touching_->next.exchange(slabs.size()), slabs.size());
  wait_for_all();
  slabs.erase(slabs.begin(), slabs.begin() + static_cast<std::ptrdiff_t>(taken));
}

HostStock::Part HostStock::at(Size offset) {
  const auto above = std::upper_bound(
      pieces_.begin(), pieces_.end(), offset,
      [](Size wanted, const std::unique_ptr<Piece>& piece) { return wanted < piece->begin; });
  Piece& piece = **std::prev(above);
  // Pinning some memory while other memory is being touched slows both down: on the card it takes a
  // fifth longer in all than one after the other.
  wait_for_all();
  // Without pinning, copies are merely slower.
  piece.is_pinned = piece.is_pinned || pin(piece);
  return {piece.bytes + (offset - piece.begin), piece.end() - offset};
}

bool HostStock::pin(Piece& piece) {
  piece.pinned_in = current_context(driver_);
  if (piece.pinned_in == nullptr) return false;  // without a context it could not be unpinned
  return driver_.cuMemHostRegister(piece.bytes, piece.size, CU_MEMHOSTREGISTER_PORTABLE) ==
         CUDA_SUCCESS;
}

void HostStock::look_again() {
  for (const auto& piece : pieces_) {
    unsigned flags = 0;
    if (!piece->is_pinned) continue;
    piece->is_pinned = driver_.cuMemHostGetFlags(&flags, piece->bytes) == CUDA_SUCCESS;
  }
}

Size HostStock::pinned_bytes() const {
  Size bytes = 0;
  for (const auto& piece : pieces_) bytes += piece->is_pinned ? piece->size : 0;
  return bytes;
}

Size HostStock::give_back(Size down_to) {
  Size gone = 0;
  if (bytes() <= down_to) return gone;
  stop_touching();
  while (bytes() > down_to) {
    gone += pieces_.back()->size;
    release(*pieces_.back());
    pieces_.pop_back();
  }
  // The remaining memory is touched when it is pinned.
  touching_.reset();
  return gone;
}

void HostStock::release(Piece& piece) {
  if (!piece.is_pinned) {
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
