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
  Size minimum = 0;          // physical memory that is always there for it
  Size maximum = unlimited;  // physical memory that it never goes beyond
  int priority = 0;          // higher: asked later, and by no model of lower priority

  // Asked to give `wanted` bytes of physical memory back, by whatever calls. Called with no lock
  // held, on the thread of who needs them.
  std::function<void(Size wanted)> reclaim;
  // Told which bytes have lost their contents.
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
  Size cached = 0;    // free chunks kept by the places
  std::size_t models = 0;
};

// Many models' addresses over memory for those that work now. Each model has an elastic pool of its
// own; what all of them hold stays within one limit. At the limit memory is reclaimed: models that
// are not more important than the one that asks are gone through, the least important first and of
// those the one that was used longest ago. What is deactivated is taken, then what is evictable,
// then the model is asked. No model loses what it has up to its minimum.
//
// Everything may be called from any thread, from callbacks too.
class SharedPool {
 public:
  static Result<std::unique_ptr<SharedPool>> create(std::shared_ptr<const PoolPlaces> places,
                                                    Size physical_limit);
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  const PoolPlaces& places() const { return *places_; }

  // The model's first address. AlreadyExists; OutOfMemory where its minimum is not to be had.
  Result<CUdeviceptr> register_model(std::string_view id, ModelSettings settings);
  // Gives everything of it back. Waits for its fences, and for its callbacks on other threads.
  Result<void> unregister_model(std::string_view id);

  Result<Size> allocate(std::string_view id, Size size, AllocationTraits traits = {});
  Result<void> allocate_at(std::string_view id, Stretch stretch, AllocationTraits traits = {});
  Result<void> deallocate(std::string_view id, Stretch stretch);
  Result<void> fence(std::string_view id, CUstream stream);
  Result<PoolCompaction> compact(std::string_view id);

  // Unmaps the model's memory; contents are kept while nobody needs it.
  Result<void> deactivate(std::string_view id);
  // Maps it where it was. Lost: new memory, whose contents mean nothing.
  Result<Activation> activate(std::string_view id);

  Result<CUdeviceptr> base_address(std::string_view id) const;
  Result<ModelStats> model_stats(std::string_view id) const;
  SharedStats stats() const;
  Size trim() const { return places_->trim(); }
  InvariantViolation violation() const;

 private:
  class Model;
  using Shared = std::shared_ptr<Model>;
  // Who is asked first comes first.
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
  Result<Shared> use(std::string_view id);  // and remember that it was used
  template <class T, class Try>
  Result<T> with_reclaim(const Shared& model, Try attempt);

  Result<void> claim(Model& model, Size bytes);
  void give_back(Model& model, Size bytes);
  Size available_to(const Model& model) const;  // under the lock

  bool reclaim_for(const Model& asker, Size wanted);
  // The next after that place; null where there is none left. A model used after `begun` is
  // needed himself.
  struct Asked {
    ReclaimRank place;
    Shared model;
  };
  Asked next_to_ask(const Model& asker, const ReclaimRank& after, std::uint64_t begun) const;
  Size could_be_taken(const Model& asker) const;
  void take_from(const Shared& model, Size wanted);
  void take_parked(const Shared& model);
  void tell_lost(const Shared& model, const std::vector<Stretch>& lost);
  template <class Call>
  void call_out(const Shared& model, Call call);

  const std::shared_ptr<const PoolPlaces> places_;  // immutable after construction
  const Size limit_;

  mutable Lock lock_{LockOrder::SharedPool};  // guards what follows, and what models say so of
  Condition callback_ended_;
  std::unordered_map<std::string, Shared, TextHash, std::equal_to<>> models_;
  std::map<ReclaimRank, Shared> order_;
  std::uint64_t clock_ = 0;
  Size claimed_ = 0;   // what models hold, or may always hold
  Size physical_ = 0;  // what they hold
};

}  // namespace cuvmm
