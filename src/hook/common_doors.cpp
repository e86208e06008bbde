// SPDX-License-Identifier: Apache-2.0
#include "hook/entry.hpp"

namespace cuvmm::hook {

#define CUVMM_COMMON(symbol, flavours)                                                  \
  static_assert(std::string_view{#flavours} ==                                          \
                (info(Call::symbol).per_thread_symbol != nullptr ? "Both" : "Legacy")); \
  CUVMM_EACH_##flavours(, symbol)
#include "hook/common_doors.def"
#undef CUVMM_COMMON

}  // namespace cuvmm::hook
