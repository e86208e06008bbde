// SPDX-License-Identifier: Apache-2.0
#include "base/lock.hpp"

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace cuvmm {

namespace {

struct LockRow {
  const char* name;
  const char* guards;
};

constexpr LockRow rows[] = {
#define CUVMM_LOCK(name, guards) {#name, guards},
#include "base/lock_order.def"
#undef CUVMM_LOCK
};

}  // namespace

const char* name_of(LockOrder order) {
  return rows[static_cast<std::size_t>(order)].name;
}

std::string describe_locks() {
  std::string text = "| Order | Lock | What it guards |\n|---|---|---|\n";
  int place = 0;
  for (const LockRow& row : rows) {
    text += "| " + std::to_string(++place) + " | `" + row.name + "` | " + row.guards + " |\n";
  }
  return text;
}

#ifndef NDEBUG
namespace detail {
namespace {

// The locks that this thread holds, one bit per LockOrder. Bits are enough, since a thread may not
// hold two locks of the same order, and a mask needs no memory and no destructor.
thread_local std::uint64_t held = 0;

static_assert(std::size(rows) <= 64, "a bit each");

constexpr std::uint64_t bit(LockOrder order) {
  return std::uint64_t{1} << static_cast<unsigned>(order);
}

LockOrder latest_held() {
  return static_cast<LockOrder>(63 - std::countl_zero(held));
}

// Reports without allocation or stdio, since the lock may have been taken for either.
[[noreturn]] void abort_over(const char* what, LockOrder order, const char* and_then,
                             const char* other) {
  char line[256];
  std::size_t length = 0;
  for (const char* part : {"cuvmm: lock order: ", what, name_of(order), and_then, other, "\n"}) {
    const std::size_t size = std::strlen(part);
    if (length + size > sizeof line) break;
    std::memcpy(line + length, part, size);
    length += size;
  }
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, length);
  std::abort();
}

}  // namespace

void check_order_before_lock(LockOrder order) {
  if (held < bit(order)) return;
  abort_over("taking ", order, " while holding ", name_of(latest_held()));
}

void remember_lock(LockOrder order) {
  // Reachable only after try_lock(), which may break the order because it does not wait, but must
  // not take two locks of one order.
  if (held & bit(order)) abort_over("taking ", order, " while holding ", name_of(order));
  held |= bit(order);
}

void forget_lock(LockOrder order) {
  if (!(held & bit(order)))
    abort_over("releasing ", order, ", which this thread does not hold", "");
  held &= ~bit(order);
}

}  // namespace detail
#endif

}  // namespace cuvmm
