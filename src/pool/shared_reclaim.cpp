// SPDX-License-Identifier: Apache-2.0
// Reclaiming memory from some models for another.
#include <algorithm>

#include "pool/shared_model.hpp"

namespace cuvmm {

// Resumes from a rank, not from an iterator: models come, go and are used while the lock is not
// held.
SharedPool::Asked SharedPool::next_to_ask(const Model& asker, const ReclaimRank& after,
                                          std::uint64_t begun) const {
  const Holding holding{lock_};
  for (auto next = order_.upper_bound(after); next != order_.end(); ++next) {
    if (next->first.priority > asker.settings.priority) break;
    if (next->second.get() != &asker && next->first.last_use <= begun) {
      return {next->first, next->second};
    }
  }
  return {after, nullptr};
}

// An estimate that asks no model. Memory below a model's minimum cannot be gained for others.
Size SharedPool::could_be_taken(const Model& asker) const {
  Size bytes = 0;
  for (Asked next = next_to_ask(asker, ReclaimRank::before_all(), unlimited); next.model != nullptr;
       next = next_to_ask(asker, next.place, unlimited)) {
    const Model& model = *next.model;
    if (model.settings.reclaim != nullptr) return unlimited;
    const Size held = model.memory->parked_bytes() + model.memory->evictable_bytes();
    const Holding holding{lock_};
    bytes += std::min(held, model.claimed() - model.settings.minimum);
  }
  return bytes;
}

// True if something was given back, so that it is worth trying again.
bool SharedPool::reclaim_for(const Model& asker, Size wanted) {
  // No model loses contents unless that can suffice.
  if (could_be_taken(asker) < wanted) return false;
  const auto available = [&] {
    const Holding holding{lock_};
    return available_to(asker);
  };
  const auto held_by_all = [&] {
    const Holding holding{lock_};
    return physical_;
  };
  const Size enough = available() + wanted;
  const Size held_before = held_by_all();
  std::uint64_t begun = 0;
  {
    const Holding holding{lock_};
    begun = clock_;
  }
  Asked next{ReclaimRank::before_all(), nullptr};
  for (Size have = available(); have < enough; have = available()) {
    next = next_to_ask(asker, next.place, begun);
    if (next.model == nullptr) break;
    take_from(next.model, enough - have);
  }
  return available() >= enough || held_by_all() < held_before;
}

void SharedPool::take_from(const Shared& model, Size wanted) {
  const auto above_minimum = [&] {
    const Holding holding{lock_};
    return model->claimed() - model->settings.minimum;
  };
  const Size before = above_minimum();
  const auto gained = [&] { return before - std::min(before, above_minimum()); };
  if (before != 0 && model->memory->is_parked()) return take_parked(model);
  // If there is nothing to take, it does not wait for the model's work.
  if (before != 0 && model->memory->evictable_bytes() != 0) {
    // Memory that the driver refuses to unmap stays the model's.
    const auto evicted = model->memory->evict(std::min(wanted, before));
    if (evicted.ok()) tell_evicted(model, evicted->allocations);
  }
  if (gained() >= wanted || model->settings.reclaim == nullptr) return;
  call_out(model, [&] { model->settings.reclaim(wanted - gained()); });
  // The model may have given memory back by deactivating itself.
  if (gained() < wanted && model->memory->is_parked()) take_parked(model);
}

void SharedPool::take_parked(const Shared& model) {
  if (model->memory->drop_parked() != 0) tell_lost(model, {0, model->memory->capacity()});
}

void SharedPool::tell_lost(const Shared& model, Stretch lost) {
  if (model->settings.lost != nullptr) call_out(model, [&] { model->settings.lost(lost); });
}

// Each by itself, since the callback may unregister the model.
void SharedPool::tell_evicted(const Shared& model, const std::vector<Stretch>& evicted) {
  for (const Stretch& stretch : evicted) {
    tell_lost(model, stretch);
    model->memory->reuse(stretch);
  }
}

template <class Call>
void SharedPool::call_out(const Shared& model, Call call) {
  {
    const Holding holding{lock_};
    // If it has been unregistered meanwhile, its callbacks must not be called any more.
    const auto found = models_.find(model->id);
    if (found == models_.end() || found->second != model) return;
    model->callbacks.push_back(std::this_thread::get_id());
  }
  call();
  const Holding holding{lock_};
  const auto mine =
      std::find(model->callbacks.begin(), model->callbacks.end(), std::this_thread::get_id());
  model->callbacks.erase(mine);
  callback_ended_.notify_all();
}

}  // namespace cuvmm
