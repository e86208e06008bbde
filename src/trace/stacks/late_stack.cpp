// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/late_stack.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/clock.hpp"
#include "trace/record_event.hpp"
#include "trace/stacks/known_stacks.hpp"
#include "trace/stacks/python_frames.hpp"

namespace cuvmm::stacks {
namespace {

constexpr std::uint32_t first_number = 1u << 24;  // above the numbers of stacks
constexpr std::uint32_t most_samples = 64;  // for one callback; after that, native frames say more

// Used by the main thread only.
struct Late {
  StackTable* table = nullptr;  // nullptr: no callback is pending
  std::uint32_t number = first_number;
  std::uint32_t samples = 0;
};
constinit Late late;

bool is_main_thread() {
  return ::syscall(SYS_gettid) == ::getpid();
}

int tell(void*) {
  if (!is_main_thread()) return 0;
  StackTable* const table = std::exchange(late.table, nullptr);
  if (table == nullptr || table != known_stacks()) return 0;  // forked meanwhile
  const std::uint64_t began = now_ns();
  std::array<Frame, most_frames> frames;
  if (const std::size_t count = python_frames(frames); count != 0) {
    const std::uint32_t stack = number_in_trace(*table, std::span{frames}.first(count));
    CUVMM_TRACE(.event = TraceEvent::SampledAs, .detail = stack, .address = late.number);
  }
  sample_took(began, now_ns());
  return 0;
}

}  // namespace

std::uint32_t stack_told_later(StackTable& table) {
  if (!is_main_thread()) return 0;
  if (late.table != &table) {
    if (!will_call_back(&tell)) return 0;
    late = {&table, late.number + 1, 0};
  }
  return ++late.samples <= most_samples ? late.number : 0;
}

}  // namespace cuvmm::stacks
