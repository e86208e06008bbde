// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cuvmm/elastic_pool.hpp"
#include "cuvmm/shared_pool.h"

namespace cuvmm {
inline namespace v1 {

enum class Activation { Kept = CUVMM_CONTENTS_KEPT, Lost = CUVMM_CONTENTS_LOST };

using ModelStats = cuvmm_model_stats;
using SharedPoolStats = cuvmm_shared_pool_stats;

// Options of a model. Callbacks run on the thread that needs memory, and may call the pool.
struct ModelOptions {
  std::uint64_t minimum = 0;  // physical memory reserved for it, used or not
  std::uint64_t maximum = 0;  // limit on its physical memory; 0: the pool's limit
  std::int32_t priority = 0;
  std::function<void(std::uint64_t wanted)> reclaim;
  std::function<void(std::uint64_t offset, std::uint64_t size)> lost;
};

// Every model has addresses, and the models in use have memory. Each member function wraps the C
// function of the same name (shared_pool.h, which has the contracts). Thread-safe.
class SharedPool {
 public:
  static Result<SharedPool> create(std::uint64_t physical_limit, const Places& places = {}) {
    const cuvmm_places in_c = places.in_c();
    cuvmm_error error{};
    cuvmm_shared_pool* pool = nullptr;
    if (cuvmm_shared_pool_create(physical_limit, &in_c, &pool, &error) != CUVMM_OK) {
      return Error{error};
    }
    return SharedPool{pool};
  }
  SharedPool(SharedPool&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), callbacks_(std::move(other.callbacks_)) {}
  SharedPool& operator=(SharedPool&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(callbacks_, other.callbacks_);
    return *this;
  }
  ~SharedPool() { cuvmm_shared_pool_destroy(pool_); }

  // Returns the model's first address.
  Result<std::uint64_t> register_model(const std::string& model, std::uint64_t capacity,
                                       ModelOptions options = {}) {
    cuvmm_model_options in_c{};
    in_c.minimum = options.minimum;
    in_c.maximum = options.maximum;
    in_c.priority = options.priority;
    if (options.reclaim) in_c.reclaim = &call_reclaim;
    if (options.lost) in_c.lost = &call_lost;
    const auto kept = std::make_shared<Kept>();
    kept->options = std::move(options);
    in_c.user = kept.get();
    auto address = detail::answer_with<std::uint64_t>([&](std::uint64_t* base, cuvmm_error* error) {
      return cuvmm_shared_pool_register_model(pool_, model.c_str(), capacity, &in_c, base, error);
    });
    if (address.ok()) callbacks_->keep(model, kept);
    return address;
  }
  Result<void> unregister_model(const std::string& model) {
    // Take the callbacks out first: another thread may register the name again as soon as it is
    // free. A moved-from pool has none, and the call below refuses it.
    auto kept = callbacks_ ? callbacks_->take(model) : nullptr;
    auto gone = detail::answer([&](cuvmm_error* error) {
      return cuvmm_shared_pool_unregister_model(pool_, model.c_str(), error);
    });
    if (!gone.ok() && kept) callbacks_->keep(model, std::move(kept));
    return gone;
  }

  Result<PoolAllocation> allocate(const std::string& model, std::uint64_t size,
                                  Traits traits = Traits::None) {
    return detail::allocation([&](auto* allocation, cuvmm_error* error) {
      return cuvmm_shared_pool_allocate(pool_, model.c_str(), size,
                                        static_cast<std::uint32_t>(traits), allocation, error);
    });
  }
  Result<PoolAllocation> allocate_at(const std::string& model, std::uint64_t offset,
                                     std::uint64_t size, Traits traits = Traits::None) {
    return detail::allocation([&](auto* allocation, cuvmm_error* error) {
      return cuvmm_shared_pool_allocate_at(pool_, model.c_str(), offset, size,
                                           static_cast<std::uint32_t>(traits), allocation, error);
    });
  }
  Result<void> deallocate(const std::string& model, const PoolAllocation& allocation) {
    return deallocate(model, allocation.offset, allocation.size);
  }
  Result<void> deallocate(const std::string& model, std::uint64_t offset, std::uint64_t size) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_shared_pool_deallocate(pool_, model.c_str(), offset, size, error);
    });
  }
  Result<void> fence(const std::string& model, void* stream) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_shared_pool_fence(pool_, model.c_str(), stream, error);
    });
  }
  Result<Compaction> compact(const std::string& model) {
    cuvmm_error error{};
    cuvmm_compaction counts{};
    std::vector<Move> moves;
    const cuvmm_status status = cuvmm_shared_pool_compact(
        pool_, model.c_str(), &detail::remember_move, &moves, &counts, &error);
    return detail::compaction(status, error, std::move(moves), counts);
  }

  Result<void> deactivate(const std::string& model) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_shared_pool_deactivate(pool_, model.c_str(), error);
    });
  }
  Result<Activation> activate(const std::string& model) {
    cuvmm_error error{};
    cuvmm_activation activation = CUVMM_CONTENTS_LOST;
    if (cuvmm_shared_pool_activate(pool_, model.c_str(), &activation, &error) != CUVMM_OK) {
      return Error{error};
    }
    return static_cast<Activation>(activation);
  }

  Result<std::uint64_t> base_address(const std::string& model) const {
    const auto stats = model_stats(model);
    if (!stats.ok()) return stats.error();
    return stats->base_address;
  }
  Result<ModelStats> model_stats(const std::string& model) const {
    return detail::answer_with<ModelStats>([&](ModelStats* stats, cuvmm_error* error) {
      return cuvmm_shared_pool_get_model_stats(pool_, model.c_str(), stats, error);
    });
  }
  SharedPoolStats stats() const {
    SharedPoolStats stats{};
    cuvmm_shared_pool_get_stats(pool_, &stats);
    return stats;
  }
  std::uint64_t trim() { return cuvmm_shared_pool_trim(pool_); }

  cuvmm_shared_pool* in_c() const { return pool_; }

 private:
  // The options that the library points to while their models are registered. A callback that
  // unregisters its own model keeps them until it returns.
  struct Kept : std::enable_shared_from_this<Kept> {
    ModelOptions options;
  };
  class Callbacks {
   public:
    void keep(const std::string& model, std::shared_ptr<Kept> options) {
      const std::lock_guard guard{lock_};
      of_models_[model] = std::move(options);
    }
    std::shared_ptr<Kept> take(const std::string& model) {
      const std::lock_guard guard{lock_};
      const auto found = of_models_.find(model);
      if (found == of_models_.end()) return nullptr;
      auto options = std::move(found->second);
      of_models_.erase(found);
      return options;
    }

   private:
    std::mutex lock_;
    std::map<std::string, std::shared_ptr<Kept>> of_models_;
  };

  explicit SharedPool(cuvmm_shared_pool* pool)
      : pool_(pool), callbacks_(std::make_unique<Callbacks>()) {}

  static void call_reclaim(void* user, const char*, std::uint64_t wanted) {
    const auto kept = static_cast<Kept*>(user)->shared_from_this();
    kept->options.reclaim(wanted);
  }
  static void call_lost(void* user, const char*, std::uint64_t offset, std::uint64_t size) {
    const auto kept = static_cast<Kept*>(user)->shared_from_this();
    kept->options.lost(offset, size);
  }

  cuvmm_shared_pool* pool_;
  std::unique_ptr<Callbacks> callbacks_;  // after the pool, which may still call them
};

}  // namespace v1
}  // namespace cuvmm
