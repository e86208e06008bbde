// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "replay/make_policy.hpp"

namespace cuvmm::cli {

// The arguments of `cuvmm replay`, as text.
struct ReplayWords {
  std::string trace;
  std::string policy = "arena";
  std::string chunk;
  std::string limit;
  std::string grow = "loose";
  std::string compact = "auto";
  bool json = false;
};

inline constexpr const char* no_allocation = "it contains no allocation of device memory";

// A limit: "16G", or a multiple of the trace's peak of live bytes: "1.02x".
class ReplayLimit {
 public:
  static Result<ReplayLimit> parse(std::string_view text);
  Size of(Size live_peak) const;

 private:
  Size bytes_ = unlimited;
  std::uint64_t billionths_ = 0;  // of the peak; 0: use bytes_
};

}  // namespace cuvmm::cli
