// SPDX-License-Identifier: Apache-2.0
// Every row of the driver's functions, called through its door with nothing but zeros.
#pragma once

#include "driver/driver.hpp"
#include "hook/door.hpp"

namespace cuvmm::test {

template <class Function>
struct ZeroCall;
template <class... Arguments>
struct ZeroCall<CUresult (*)(Arguments...)> {
  static void call(void* door) {
    reinterpret_cast<CUresult (*)(Arguments...)>(door)(Arguments{}...);
  }
};

inline constexpr void (*zero_calls[])(void*) = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  &ZeroCall<hook::Row<Call::symbol>::Function>::call,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

}  // namespace cuvmm::test
