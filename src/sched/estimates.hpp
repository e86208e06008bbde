// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace cuvmm {

// How long a lane's operations take on the device, learnt from completed ones. A guess for kinds
// that have not been seen, or that a hash collision has evicted.
class Estimates {
 public:
  std::uint64_t of(std::uint64_t kind) const {
    const Known& known = at(kind);
    return known.kind == kind && kind != 0 ? known.ns : of_any_;
  }

  bool knows(std::uint64_t kind) const { return kind != 0 && at(kind).kind == kind; }

  bool has_learnt() const { return has_learnt_; }

  void learn(std::uint64_t kind, std::uint64_t ns) {
    has_learnt_ = true;
    of_any_ = closer(of_any_, ns);
    if (kind == 0) return;
    Known& known = table_[index(kind)];
    known = {kind, known.kind == kind ? closer(known.ns, ns) : ns};
  }

 private:
  struct Known {
    std::uint64_t kind = 0;
    std::uint64_t ns = 0;
  };
  static constexpr std::size_t index(std::uint64_t kind) {
    return static_cast<std::size_t>((kind * 0x9E3779B97F4A7C15u) >> 57);
  }
  const Known& at(std::uint64_t kind) const { return table_[index(kind)]; }
  static std::uint64_t closer(std::uint64_t known, std::uint64_t seen) {
    return known - known / 4 + seen / 4;
  }

  std::array<Known, 128> table_{};
  std::uint64_t of_any_ = 10'000;
  bool has_learnt_ = false;
};

}  // namespace cuvmm
