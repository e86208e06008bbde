// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// The properties of a kernel needed to launch it later, and to report at once what the driver would
// refuse.
struct KernelFacts {
  struct Parameter {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  int most_threads = 0;         // per block
  int most_dynamic_shared = 0;  // bytes
};

class KnownKernels {
 public:
  explicit KnownKernels(const Driver& driver) : driver_(driver) {}

  // nullptr if the driver does not know the function, or cannot report its parameters (before
  // 12.4). The function may be a CUkernel.
  std::shared_ptr<const KernelFacts> find(CUfunction function, int device);
  // Launches that the driver has accepted, keyed by a hash of everything that it checks: it will
  // accept the same launch again.
  bool was_taken(std::uint64_t launch) const;
  void taken(std::uint64_t launch);

  // Call when a kernel's handle may be reused, or its attributes may change.
  void forget_all();

 private:
  struct Key {
    CUfunction function;
    int device;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<void*>{}(key.function) ^ static_cast<std::size_t>(key.device);
    }
  };
  std::shared_ptr<const KernelFacts> ask(CUfunction function, int device) const;
  bool ask_parameters(CUfunction function, KernelFacts& facts) const;
  int attribute(CUfunction_attribute which, CUfunction function, int device) const;

  const Driver& driver_;
  mutable SharedLock lock_{LockOrder::KernelFacts};  // guards what follows
  std::unordered_map<Key, std::shared_ptr<const KernelFacts>, KeyHash> known_;
  std::unordered_set<std::uint64_t> taken_;
};

}  // namespace cuvmm
