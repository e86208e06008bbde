// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "pool/elastic_pool.hpp"

namespace cuvmm {

struct ModelSettings {
  Size capacity = 0;         // addresses
  Size minimum = 0;          // guaranteed physical memory
  Size maximum = unlimited;  // upper limit of physical memory
  int priority = 0;  // higher: reclaimed from later, and never for a model of lower priority

  // Asks the model to give back `wanted` bytes of physical memory, by any means. Called without
  // locks held, on the thread that needs them.
  std::function<void(Size wanted)> reclaim;
  // Reports bytes whose contents were lost.
  std::function<void(Stretch lost)> lost;
};

struct ModelStats {
  ElasticStats memory;
  Size minimum = 0;
  Size maximum = unlimited;
  int priority = 0;
  bool is_active = true;
};

struct SharedStats {
  Size physical_limit = 0;
  Size physical = 0;  // of all models
  Size cached = 0;    // free chunks cached at the places
  std::size_t models = 0;
};

// Addresses for many models, with memory for those that are working. Each model has an elastic pool
// of its own; together they stay within one limit. At the limit, memory is reclaimed from models
// that are no more important than the requester: the least important first, and among equals the
// least recently used. Deactivated memory is taken first, then evictable allocations, then the
// model is asked. No model loses memory below its minimum.
//
// Thread-safe, also from within callbacks.
class SharedPool {
 public:
  static Result<std::unique_ptr<SharedPool>> create(std::shared_ptr<const PoolPlaces> places,
                                                    Size physical_limit);
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  const PoolPlaces& places() const { return *places_; }

  // Returns the model's base address. AlreadyExists; OutOfMemory if its minimum cannot be granted.
  Result<CUdeviceptr> register_model(std::string_view id, ModelSettings settings);
  // Releases all its memory. Waits for its fences, and for its callbacks on other threads.
  Result<void> unregister_model(std::string_view id);

  Result<Size> allocate(std::string_view id, Size size, AllocationTraits traits = {});
  Result<void> allocate_at(std::string_view id, Stretch stretch, AllocationTraits traits = {});
  Result<void> deallocate(std::string_view id, Stretch stretch);
  Result<void> fence(std::string_view id, CUstream stream);
  Result<PoolCompaction> compact(std::string_view id);

  // Unmaps the model's memory; contents are kept until another model needs it.
  Result<void> deactivate(std::string_view id);
  // Maps the memory where it was. Lost: it is new memory with undefined contents.
  Result<Activation> activate(std::string_view id);

  Result<CUdeviceptr> base_address(std::string_view id) const;
  Result<ModelStats> model_stats(std::string_view id) const;
  SharedStats stats() const;
  Size trim() const { return places_->trim(); }
  InvariantViolation violation() const;

 private:
  class Model;
  using Shared = std::shared_ptr<Model>;
  // The order in which models are reclaimed from.
  struct ReclaimRank {
    int priority;
    std::uint64_t last_use;
    static constexpr ReclaimRank before_all() { return {std::numeric_limits<int>::min(), 0}; }
    friend auto operator<=>(const ReclaimRank&, const ReclaimRank&) = default;
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  SharedPool(std::shared_ptr<const PoolPlaces> places, Size physical_limit)
      : places_(std::move(places)), limit_(physical_limit) {}

  Result<Shared> find(std::string_view id) const;
  Result<Shared> use(std::string_view id);  // finds it and marks it as used
  template <class T, class Try>
  Result<T> with_reclaim(const Shared& model, Try attempt);

  Result<void> claim(Model& model, Size bytes);
  void give_back(Model& model, Size bytes);
  Size available_to(const Model& model) const;  // requires the lock

  bool reclaim_for(const Model& asker, Size wanted);
  // The next model to reclaim from after that place; null if none is left. Skips models used after
  // `begun`: they need their memory themselves.
  struct Asked {
    ReclaimRank place;
    Shared model;
  };
  Asked next_to_ask(const Model& asker, const ReclaimRank& after, std::uint64_t begun) const;
  Size could_be_taken(const Model& asker) const;
  void take_from(const Shared& model, Size wanted);
  void take_parked(const Shared& model);
  void tell_lost(const Shared& model, Stretch lost);
  void tell_evicted(const Shared& model, const std::vector<Stretch>& evicted);
  template <class Call>
  void call_out(const Shared& model, Call call);

  const std::shared_ptr<const PoolPlaces> places_;  // immutable after construction
  const Size limit_;

  mutable Lock lock_{LockOrder::SharedPool};  // also guards some members of models
  Condition callback_ended_;
  std::unordered_map<std::string, Shared, TextHash, std::equal_to<>> models_;
  std::map<ReclaimRank, Shared> order_;
  std::uint64_t clock_ = 0;
  Size claimed_ = 0;   // held by models, or guaranteed to them
  Size physical_ = 0;  // held by models
};

}  // namespace cuvmm
