// SPDX-License-Identifier: Apache-2.0
#include "vmm/reclaim.hpp"

#include <algorithm>
#include <limits>

namespace cuvmm {

ReclaimRegistration::~ReclaimRegistration() {
  if (clients_ != nullptr) clients_->remove(id_);
}

ReclaimRegistration ReclaimClients::add(ReclaimClient& client, int order) {
  const Holding holding{lock_};
  const std::uint64_t id = ++last_id_;
  const auto place = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.comes_after(order, id); });
  entries_.insert(place, {order, id, &client, 0});
  return {*this, id};
}

void ReclaimClients::remove(std::uint64_t id) {
  Holding holding{lock_};
  const auto mine = [&] {
    return std::find_if(entries_.begin(), entries_.end(),
                        [id](const Entry& entry) { return entry.id == id; });
  };
  call_ended_.wait(holding, [&] { return mine()->calls_under_way == 0; });
  entries_.erase(mine());
}

Size ReclaimClients::ask(Size wanted, Location where, const ReclaimClient* asker) {
  Size got = 0;
  int order = std::numeric_limits<int>::min();
  std::uint64_t id = 0;
  while (got < wanted) {
    Holding holding{lock_};
    // Resume by number, since entries may change while the lock is not held.
    const auto next = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.comes_after(order, id) && entry.client != asker;
    });
    if (next == entries_.end()) break;
    order = next->order;
    id = next->id;
    ReclaimClient& client = *next->client;
    ++next->calls_under_way;
    holding.unlock();

    const Size released = client.reclaim(wanted - got, where);
    got = saturating_sum(got, released);

    holding.lock();
    const auto same = std::find_if(entries_.begin(), entries_.end(),
                                   [id](const Entry& entry) { return entry.id == id; });
    --same->calls_under_way;
    call_ended_.notify_all();
  }
  return got;
}

}  // namespace cuvmm
