// SPDX-License-Identifier: Apache-2.0
// Models and their memory. Reclaim is in shared_reclaim.cpp.
#include "pool/shared_pool.hpp"

#include <algorithm>

#include "pool/shared_model.hpp"

namespace cuvmm {
namespace {

constexpr const char* registering = "register a model";
constexpr const char* finding = "look for a model";
// An allocation that fails although memory was reclaimed for it tries again, a limited number of
// times: others may have taken the memory first.
constexpr int most_attempts = 8;

}  // namespace

Result<std::unique_ptr<SharedPool>> SharedPool::create(std::shared_ptr<const PoolPlaces> places,
                                                       Size physical_limit) {
  if (physical_limit < places->granule()) {
    return Error::invalid("make a shared pool", "the limit is less than a granule", physical_limit);
  }
  return std::unique_ptr<SharedPool>{new SharedPool{std::move(places), physical_limit}};
}

SharedPool::~SharedPool() {
  // Closes the memory first, since it returns its quota to members of this object.
  for (const auto& [id, model] : models_) model->memory->close();
}

Result<SharedPool::Shared> SharedPool::find(std::string_view id) const {
  const Holding holding{lock_};
  const auto found = models_.find(id);
  if (found != models_.end()) return found->second;
  return Error{.kind = ErrorKind::NotFound, .doing = finding, .subject = "no model of that name"};
}

Result<SharedPool::Shared> SharedPool::use(std::string_view id) {
  const Holding holding{lock_};
  const auto found = models_.find(id);
  if (found == models_.end()) {
    return Error{.kind = ErrorKind::NotFound, .doing = finding, .subject = "no model of that name"};
  }
  Model& model = *found->second;
  auto entry = order_.extract(model.place);
  model.place.last_use = ++clock_;
  entry.key() = model.place;
  order_.insert(std::move(entry));
  return found->second;
}

Result<CUdeviceptr> SharedPool::register_model(std::string_view id, ModelSettings settings) {
  if (id.empty()) return Error::invalid(registering, "without a name");
  if (settings.minimum > settings.maximum) {
    return Error::invalid(registering, "its minimum is more than its maximum", settings.minimum);
  }
  const auto exists = [&] { return Error{.kind = ErrorKind::AlreadyExists, .doing = registering}; };
  if (find(id).ok()) return exists();
  const auto model = std::make_shared<Model>(*this, id, std::move(settings));
  model->memory = TRY(ElasticPool::create(places_, {.capacity = model->settings.capacity,
                                                    .most_capacity = model->settings.capacity,
                                                    .quota = model.get()}));
  const Holding holding{lock_};
  if (models_.contains(id)) return exists();
  const Size minimum = model->settings.minimum;
  if (minimum > limit_ - std::min(limit_, claimed_)) {
    return Error{.kind = ErrorKind::OutOfMemory,
                 .doing = registering,
                 .subject = "its minimum cannot be granted",
                 .asked = minimum,
                 .available = limit_ - std::min(limit_, claimed_)};
  }
  claimed_ += minimum;
  model->place = {model->settings.priority, ++clock_};
  order_.emplace(model->place, model);
  models_.emplace(id, model);
  return model->memory->base_address();
}

Result<void> SharedPool::unregister_model(std::string_view id) {
  Shared model;
  {
    Holding holding{lock_};
    const auto found = models_.find(id);
    if (found == models_.end()) {
      return Error{.kind = ErrorKind::NotFound, .doing = "unregister a model"};
    }
    model = found->second;
    // From here on it cannot be found, and no new callback of it starts.
    order_.erase(model->place);
    models_.erase(found);
    callback_ended_.wait(holding, [&] {
      return std::all_of(model->callbacks.begin(), model->callbacks.end(),
                         [](std::thread::id one) { return one == std::this_thread::get_id(); });
    });
  }
  model->memory->close();
  const Holding holding{lock_};
  claimed_ -= model->claimed();
  return {};
}

// Requires the lock. How much more the model may have than it has now.
Size SharedPool::available_to(const Model& model) const {
  const Size own = model.claimed() - model.physical;
  const Size common = limit_ - std::min(limit_, claimed_);
  const Size below_maximum =
      model.settings.maximum - std::min(model.settings.maximum, model.physical);
  return std::min(own + common, below_maximum);
}

Result<void> SharedPool::claim(Model& model, Size bytes) {
  const Holding holding{lock_};
  const Size available = available_to(model);
  if (bytes > available) {
    const Size maximum = model.settings.maximum;
    const bool is_at_maximum = bytes > maximum - std::min(maximum, model.physical);
    return Error{.kind = ErrorKind::OutOfMemory,
                 .doing = "take memory for a model",
                 .subject = is_at_maximum ? "the model's maximum" : "the pool's limit",
                 .asked = bytes,
                 .available = available};
  }
  claimed_ -= model.claimed();
  model.physical += bytes;
  physical_ += bytes;
  claimed_ += model.claimed();
  return {};
}

void SharedPool::give_back(Model& model, Size bytes) {
  const Holding holding{lock_};
  claimed_ -= model.claimed();
  model.physical -= bytes;
  physical_ -= bytes;
  claimed_ += model.claimed();
}

template <class T, class Try>
Result<T> SharedPool::with_reclaim(const Shared& model, Try attempt) {
  for (int attempts = 1;; ++attempts) {
    Result<T> result = attempt();
    if (result.ok() || result.error().kind != ErrorKind::OutOfMemory) return result;
    const Size asked = result.error().asked;
    const Size available = std::min(asked, result.error().available);
    Size own_room = 0;
    {
      const Holding holding{lock_};
      own_room = model->settings.maximum - std::min(model->settings.maximum, model->physical);
    }
    if (asked > own_room || asked > limit_ || attempts == most_attempts) return result;
    if (!reclaim_for(*model, std::max(asked - available, Size{1}))) return result;
  }
}

Result<Size> SharedPool::allocate(std::string_view id, Size size, AllocationTraits traits) {
  const Shared model = TRY(use(id));
  return with_reclaim<Size>(model, [&] { return model->memory->allocate(size, traits); });
}

Result<void> SharedPool::allocate_at(std::string_view id, Stretch stretch,
                                     AllocationTraits traits) {
  const Shared model = TRY(use(id));
  return with_reclaim<void>(model, [&] { return model->memory->allocate_at(stretch, traits); });
}

Result<void> SharedPool::deallocate(std::string_view id, Stretch stretch) {
  return TRY(find(id))->memory->deallocate(stretch);
}

Result<void> SharedPool::fence(std::string_view id, CUstream stream) {
  return TRY(use(id))->memory->fence(stream);
}

Result<PoolCompaction> SharedPool::compact(std::string_view id) {
  return TRY(find(id))->memory->compact();
}

Result<void> SharedPool::deactivate(std::string_view id) {
  return TRY(find(id))->memory->park();
}

Result<Activation> SharedPool::activate(std::string_view id) {
  const Shared model = TRY(use(id));
  return with_reclaim<Activation>(model, [&] { return model->memory->unpark(); });
}

Result<CUdeviceptr> SharedPool::base_address(std::string_view id) const {
  return TRY(find(id))->memory->base_address();
}

Result<ModelStats> SharedPool::model_stats(std::string_view id) const {
  const Shared model = TRY(find(id));
  return ModelStats{.memory = model->memory->stats(),
                    .minimum = model->settings.minimum,
                    .maximum = model->settings.maximum,
                    .priority = model->settings.priority,
                    .is_active = !model->memory->is_parked()};
}

SharedStats SharedPool::stats() const {
  const Size cached = places_->cached_bytes();
  const Holding holding{lock_};
  return {
      .physical_limit = limit_, .physical = physical_, .cached = cached, .models = models_.size()};
}

InvariantViolation SharedPool::violation() const {
  std::vector<Shared> all;
  {
    const Holding holding{lock_};
    Size claimed = 0;
    Size physical = 0;
    for (const auto& [id, model] : models_) {
      claimed += model->claimed();
      physical += model->physical;
      const auto place = order_.find(model->place);
      if (place == order_.end() || place->second != model)
        return "shared pool: a model has no place";
      all.push_back(model);
    }
    if (order_.size() != models_.size()) return "shared pool: a place without its model";
    if (physical != physical_) return "shared pool: the models' memory does not add up";
    if (claimed != claimed_) return "shared pool: what is claimed does not add up";
    if (claimed_ > limit_) return "shared pool: more is claimed than the limit";
  }
  for (const Shared& model : all) {
    if (const InvariantViolation found = model->memory->violation())
      return model->id + ": " + *found;
  }
  return {};
}

}  // namespace cuvmm
