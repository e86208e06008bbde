// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "driver/cuda.hpp"

namespace cuvmm {

// A deferred call with its own copies of its arguments. Constructed in place and never moved, so
// that recording a call does not allocate.
class RecordedCall {
 public:
  static constexpr std::size_t most_bytes = 448;

  RecordedCall() = default;
  ~RecordedCall() { clear(); }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // `call()` returns a CUresult.
  template <class Call>
  void put(Call&& call) {
    using Kept = std::decay_t<Call>;
    static_assert(sizeof(Kept) <= most_bytes && alignof(Kept) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Kept> || std::is_copy_constructible_v<Kept>);
    clear();
    ::new (static_cast<void*>(bytes_)) Kept(std::forward<Call>(call));
    make_ = [](void* kept) { return static_cast<CUresult>((*static_cast<Kept*>(kept))()); };
    drop_ = [](void* kept) { static_cast<Kept*>(kept)->~Kept(); };
  }

  CUresult make() { return make_(bytes_); }

  // Destroys the recorded call.
  void clear() {
    if (drop_ != nullptr) drop_(bytes_);
    drop_ = nullptr;
    make_ = nullptr;
  }

 private:
  alignas(std::max_align_t) std::byte bytes_[most_bytes];
  CUresult (*make_)(void*) = nullptr;
  void (*drop_)(void*) = nullptr;
};

}  // namespace cuvmm
