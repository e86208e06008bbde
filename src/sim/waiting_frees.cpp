// SPDX-License-Identifier: Apache-2.0
#include "sim/waiting_frees.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/made_once.hpp"
#include "sim/context.hpp"

namespace cuvmm::sim {
namespace {

// Virtual memory management, queries, waits, value writes and stream-ordered memory do not wait.
constexpr bool waits_behind_frees(std::string_view name) {
  constexpr auto waiting = std::to_array<std::string_view>(
      {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuEventCreate", "cuEventDestroy",
       "cuEventRecord", "cuStreamCreate"});
  return name == "cuMemAlloc_v2" ||
         std::any_of(waiting.begin(), waiting.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

constexpr bool row_waits[] = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) waits_behind_frees(#symbol),
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

struct Waiting {
  std::atomic<int> frees{0};
  std::mutex lock;  // guards the members below
  std::condition_variable changed;
  std::vector<const Context*> contexts;
};

Waiting& waiting() {
  static constinit MadeOnce<Waiting> all;  // threads may still wait at exit
  return all.get();
}

}  // namespace

WaitingFree::WaitingFree(const Context& context) : context_(context) {
  const std::lock_guard holding{waiting().lock};
  waiting().contexts.push_back(&context_);
  waiting().frees.fetch_add(1);
}

WaitingFree::~WaitingFree() {
  {
    const std::lock_guard holding{waiting().lock};
    auto& contexts = waiting().contexts;
    contexts.erase(std::find(contexts.begin(), contexts.end(), &context_));
    waiting().frees.fetch_sub(1);
  }
  waiting().changed.notify_all();
}

void wait_behind_frees(Row row) {
  if (!row_waits[static_cast<std::size_t>(row)] || waiting().frees.load() == 0) return;
  const auto current = ContextStack::current();
  if (current == nullptr) return;
  std::unique_lock holding{waiting().lock};
  waiting().changed.wait(holding, [&] {
    const auto& contexts = waiting().contexts;
    return std::find(contexts.begin(), contexts.end(), current.get()) == contexts.end();
  });
}

}  // namespace cuvmm::sim
