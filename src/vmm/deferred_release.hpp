// SPDX-License-Identifier: Apache-2.0
// Giving things back to the driver where nobody can be told that it refused: in destructors. What
// it refuses twice is remembered and offered again before the next chunk or reservation is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "driver/cuda.hpp"

namespace cuvmm {

// In the order in which the driver can take them: addresses only once nothing lies behind them, and
// nothing that a copy may still use.
enum class Deferred : std::uint8_t { Copy, Mapping, Addresses, Handle };

// CUDA_ERROR_DEINITIALIZED: the process ends and the driver has taken everything back by itself.
inline bool taken_back(CUresult answer) {
  return answer == CUDA_SUCCESS || answer == CUDA_ERROR_DEINITIALIZED;
}

namespace detail {
void defer(Deferred what, std::function<CUresult()> ask);
}  // namespace detail

// `ask` is the driver call. Whatever must live until the call succeeds travels inside it.
template <class Ask>
void release_or_defer(Deferred what, Ask ask) {
  if (taken_back(ask()) || taken_back(ask())) return;
  detail::defer(what, std::move(ask));
}

// The same for what has been asked already, in vain. `ask` ends with what it holds once it
// succeeds.
inline void defer_release(Deferred what, std::function<CUresult()> ask) {
  detail::defer(what, std::move(ask));
}

// How much the driver still has to take back; 0 unless it refused, which no healthy one does.
std::size_t deferred_releases();

// Offers all of it again. Returns what is left.
std::size_t retry_releases();

// A forked child owes nothing: the handles are its parent's.
void forget_deferred_after_fork();

}  // namespace cuvmm
