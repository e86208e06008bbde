// SPDX-License-Identifier: Apache-2.0
// Releasing driver objects in destructors, which cannot report that the driver refused. A release
// refused twice is remembered, and tried again before the next chunk or reservation is created.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "driver/cuda.hpp"

namespace cuvmm {

// In the order in which the driver accepts the releases: a copy must end before anything that it
// uses is released, and mappings must go before their addresses.
enum class Deferred : std::uint8_t { Copy, Mapping, Addresses, Handle };

// CUDA_ERROR_DEINITIALIZED: the process is exiting, and the driver has released everything itself.
inline bool taken_back(CUresult answer) {
  return answer == CUDA_SUCCESS || answer == CUDA_ERROR_DEINITIALIZED;
}

namespace detail {
void defer(Deferred what, std::function<CUresult()> ask);
}  // namespace detail

// `ask` makes the driver call. It must own whatever has to live until the call succeeds.
template <class Ask>
void release_or_defer(Deferred what, Ask ask) {
  if (taken_back(ask()) || taken_back(ask())) return;
  detail::defer(what, std::move(ask));
}

// The same after the driver has already refused. `ask` and everything that it owns are destroyed
// once it succeeds.
inline void defer_release(Deferred what, std::function<CUresult()> ask) {
  detail::defer(what, std::move(ask));
}

// cuvmm's own references to chunks, each by the driver's handle and until the driver has released
// it. The driver reuses handles: a program that releases its chunk twice, which the driver refuses,
// must not release the chunk of cuvmm's that has the same handle by then.
void add_own_reference(CUmemGenericAllocationHandle chunk);
void remove_own_reference(CUmemGenericAllocationHandle chunk);
bool has_own_reference(CUmemGenericAllocationHandle chunk);

// Releases such a reference through `ask`.
template <class Ask>
void release_chunk_or_defer(CUmemGenericAllocationHandle chunk, Ask ask) {
  release_or_defer(Deferred::Handle, [chunk, ask = std::move(ask)]() mutable {
    const CUresult answer = ask();
    if (taken_back(answer)) remove_own_reference(chunk);
    return answer;
  });
}

// The number of deferred releases. 0 unless the driver refused, which a healthy driver never does.
std::size_t deferred_releases();

// Tries all of them again. Returns how many are left.
std::size_t retry_releases();

// A forked child has nothing to release: the handles are its parent's.
void forget_deferred_after_fork();

}  // namespace cuvmm
