// SPDX-License-Identifier: Apache-2.0
#include "engine/watch.hpp"

#include <cstdlib>

namespace cuvmm {

void Watch::begin(Watcher& watcher, Effect effects) {
  for (Registration& registration : registrations_) {
    Watcher* nobody = nullptr;
    if (!registration.watcher.compare_exchange_strong(nobody, &watcher)) continue;
    registration.effects.store(static_cast<std::uint8_t>(effects));
    renew_wanted();
    return;
  }
  // Cannot happen: the set of watchers is fixed when the engine is built, and is smaller.
  std::abort();
}

void Watch::end(Watcher& watcher) {
  for (Registration& registration : registrations_) {
    if (registration.watcher.load() != &watcher) continue;
    registration.effects.store(0);
    registration.watcher.store(nullptr);
  }
  renew_wanted();
}

void Watch::renew_wanted() {
  // Several threads may do this at once. A thread that stored an outdated value sees that and
  // retries.
  const auto all_wanted = [this] {
    std::uint8_t all = 0;
    for (const Registration& registration : registrations_) all |= registration.effects.load();
    return all;
  };
  for (std::uint8_t all = all_wanted();;) {
    wanted_.store(all);
    const std::uint8_t now = all_wanted();
    if (now == all) return;
    all = now;
  }
}

CUresult Watch::notify(const CallSite& site) {
  CUresult answer = CUDA_SUCCESS;
  for (Registration& registration : registrations_) {
    Watcher* watcher = registration.watcher.load(std::memory_order_acquire);
    if (watcher == nullptr) continue;
    if ((registration.effects.load() & static_cast<std::uint8_t>(site.effect)) == 0) continue;
    const CUresult one = watcher->before(site);
    if (answer == CUDA_SUCCESS) answer = one;
  }
  return answer;
}

}  // namespace cuvmm
