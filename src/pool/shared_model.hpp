// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "pool/shared_pool.hpp"

namespace cuvmm {

// One model of a shared pool, and the quota of its memory, which refers to the pool.
class SharedPool::Model final : public PoolQuota {
 public:
  Model(SharedPool& pool, std::string_view name, ModelSettings wanted)
      : id(name), settings(std::move(wanted)), pool_(pool) {}

  Result<void> claim(Size bytes) override { return pool_.claim(*this, bytes); }
  void give_back(Size bytes) override { pool_.give_back(*this, bytes); }

  const std::string id;
  const ModelSettings settings;
  std::unique_ptr<ElasticPool> memory;  // immutable once the model is registered

  // Guarded by the pool's lock.
  Size physical = 0;
  ReclaimRank place{};
  std::vector<std::thread::id> callbacks;  // threads currently running one of its callbacks
  Size claimed() const { return std::max(physical, settings.minimum); }

 private:
  SharedPool& pool_;
};

}  // namespace cuvmm
