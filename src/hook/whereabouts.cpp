// SPDX-License-Identifier: Apache-2.0
#include "hook/whereabouts.hpp"

#include <atomic>

namespace cuvmm::hook {
namespace {

// The number of live contexts that can be told apart; any beyond that have the number 0.
constexpr std::uint32_t most_contexts = 64;

// times_used grows whenever the slot's context is forgotten, so no number is used twice.
struct Slot {
  std::atomic<CUcontext> context{nullptr};
  std::atomic<std::uint32_t> times_used{0};
};
constinit Slot slots[most_contexts];
constinit std::atomic<std::uint32_t> forgotten{0};

std::uint32_t number_of(CUcontext context) {
  for (std::uint32_t i = 0; i < most_contexts; ++i) {
    CUcontext there = slots[i].context.load(std::memory_order_acquire);
    if (there == nullptr && slots[i].context.compare_exchange_strong(there, context)) {
      there = context;
    }
    if (there == context) return slots[i].times_used.load() * most_contexts + i + 1;
  }
  return 0;
}

struct Known {
  CUcontext context;
  std::uint32_t forgotten;
  Whereabouts whereabouts;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Known known{};

}  // namespace

Whereabouts whereabouts(const Driver& driver) {
  CUcontext context = nullptr;
  if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const std::uint32_t now = forgotten.load(std::memory_order_acquire);
  if (context == known.context && now == known.forgotten) return known.whereabouts;
  CUdevice device = no_device;
  if (driver.cuCtxGetDevice_v2000(&device) != CUDA_SUCCESS) device = no_device;
  known = {context, now, {static_cast<std::int16_t>(device), number_of(context)}};
  return known.whereabouts;
}

std::uint32_t number_of_context(CUcontext context) {
  return context != nullptr ? number_of(context) : 0;
}

void forget_context(CUcontext context) {
  for (Slot& slot : slots) {
    if (context == nullptr || slot.context.load(std::memory_order_acquire) != context) continue;
    slot.times_used.fetch_add(1);
    slot.context.store(nullptr, std::memory_order_release);
    forgotten.fetch_add(1, std::memory_order_release);
    return;
  }
}

}  // namespace cuvmm::hook
