// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <unordered_map>

#include "base/lock.hpp"
#include "base/size.hpp"

namespace cuvmm {

// Device memory that the program has taken from the driver natively, by name. Thread-safe.
class NativeMemory {
 public:
  enum class Kind : std::uint8_t { Address, Chunk, Array };
  struct Name {
    Kind kind;
    std::uint64_t number;
    bool operator==(const Name&) const = default;
  };
  struct Taken {
    int device;
    Size size;
  };

  void took(const Name& name, const Taken& taken);
  // nullopt if the name is unknown.
  std::optional<Taken> gave_back(const Name& name);

 private:
  struct NameHash {
    std::size_t operator()(const Name& name) const noexcept {
      return (name.number ^ (std::uint64_t{static_cast<std::uint8_t>(name.kind)} << 60)) *
             0x9E3779B97F4A7C15u;
    }
  };
  std::atomic<std::size_t> count_{0};

  Lock lock_{LockOrder::Devices};  // guards what follows
  std::unordered_map<Name, Taken, NameHash> taken_;
};

}  // namespace cuvmm
