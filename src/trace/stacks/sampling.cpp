// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/sampling.hpp"

#include <array>
#include <atomic>
#include <cerrno>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "trace/current_trace.hpp"
#include "trace/record_event.hpp"
#include "trace/stacks/known_stacks.hpp"
#include "trace/stacks/late_stack.hpp"
#include "trace/stacks/native_frames.hpp"
#include "trace/stacks/python_frames.hpp"
#include "trace/stacks/sample_rate.hpp"
#include "trace/writer.hpp"

namespace cuvmm {
namespace {

using namespace stacks;

constinit SampleRate rate;
constinit std::atomic<StackTable*> table{nullptr};

struct ThisThread {
  SampleRate::Thread rate;
  bool is_sampling = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThisThread this_thread;

std::uint32_t stack_here(StackTable& known) {
  std::array<Frame, most_frames> frames;
  std::size_t count = python_frames(frames);
  if (count == 0) {
    if (const std::uint32_t later = stack_told_later(known)) return later;
    count = native_frames(frames);
  }
  return number_in_trace(known, std::span{frames}.first(count));
}

void take_sample(const TraceRecord& allocation) {
  StackTable* const known = known_stacks();
  const Size weight = rate.weight_of(allocation.size, this_thread.rate);
  if (known == nullptr || weight == 0) return;
  const std::uint64_t began = now_ns();
  const std::uint32_t stack = stack_here(*known);
  CUVMM_TRACE(.time = allocation.time, .event = TraceEvent::Sampled, .flags = allocation.flags,
              .device = allocation.device, .call = allocation.call, .context = allocation.context,
              .detail = stack, .address = allocation.address, .size = allocation.size,
              .other = weight);
  sample_took(began, now_ns());
}

}  // namespace

StackTable* stacks::known_stacks() {
  return table.load(std::memory_order_acquire);
}

std::uint32_t stacks::number_in_trace(StackTable& known, std::span<const Frame> frames) {
  TraceFacts fresh;
  const std::uint32_t stack = known.number_of(frames, fresh);
  TraceWriter* const writer = current_trace();
  if (writer != nullptr && !(fresh.names.empty() && fresh.stacks.empty())) {
    writer->add(std::move(fresh));
  }
  return stack;
}

void stacks::sample_took(std::uint64_t began, std::uint64_t ended) {
  rate.spent(began, ended);
}

void start_stack_samples(Size interval) {
  if (interval == 0 || current_trace() == nullptr) return;
  StackTable* const fresh = StackTable::create();
  if (fresh == nullptr) {
    CUVMM_LOG(Warning, "no memory for call stacks; the trace has none");
    return;
  }
  rate.start(interval);
  table.store(fresh, std::memory_order_release);
}

void sample_stack_of(const TraceRecord& allocation) {
  if (!rate.is_on() || this_thread.is_sampling) return;
  this_thread.is_sampling = true;
  const int kept = errno;
  take_sample(allocation);
  errno = kept;
  this_thread.is_sampling = false;
}

// The parent's table stays where it is: another thread may have held its lock.
void forget_stack_samples() {
  table.store(nullptr);
  rate.start(0);
}

}  // namespace cuvmm
