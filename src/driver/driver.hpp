// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "driver/calls.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// The addresses of a row's two forms; equal if it has only one.
struct FunctionPair {
  void* legacy;
  void* per_thread;
};

// The driver's functions, one member per row of driver_api.def: driver.cuMemMap(...). A signature
// that a newer one has replaced carries its version: driver.cuCtxSynchronize_v2000. Members of the
// per-thread flavour end in _per_thread. A function that the loaded driver lacks answers
// CUDA_ERROR_NOT_SUPPORTED, and check() then reports which function it was and what it needs.
//
// Plain data, filled once by load_driver() and never changed, so that calls cost one indirection
// and tests can substitute their own functions.
struct Driver {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  PFN_##name##_v##since name;                                         \
  PFN_##name##_v##since name##_per_thread;
#define CUVMM_API_OLD(name, symbol, since, until, flavours, effect, need) \
  PFN_##name##_v##since name##_v##since;                                  \
  PFN_##name##_v##since name##_v##since##_per_thread;
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

  int version = 0;  // as reported by cuDriverGetVersion: 13000

  bool has(Call call) const {
    return present[static_cast<std::size_t>(call)];
  }
  std::array<bool, call_count> present{};

  // A row's members as addresses, for code that treats all rows alike.
  FunctionPair functions(Call call) const;
  void set_functions(Call call, const FunctionPair& pair);

  // The driver's answer as a Result. `doing` is a string literal that names the failed step.
  Result<void> check(CUresult answer, const char* doing, Size asked = 0) const;
  Error error_of(CUresult answer, const char* doing, Size asked = 0) const;
};

// Whether every later call in the context returns the same error.
bool is_sticky(CUresult answer);

// Whether this answer about a stream or event means that its work is done, or has ended with its
// context.
bool says_nothing_runs(CUresult answer);

// The CUresult to give the program for an Error of cuvmm's.
CUresult to_cuda(const Error& error);

// Where the loader gets its functions from. The preload library supplies the real dlsym here, since
// the visible one is its own.
struct LoaderDoors {
  void* (*open)(const char* path);
  void* (*symbol)(void* library, const char* name);

  static constexpr LoaderDoors of_the_system() {
    return {.open = &open_by_system, .symbol = &find_by_system};
  }
  static void* open_by_system(const char* path);
  static void* find_by_system(void* library, const char* name);
};

// Opens libcuda.so.1 (or `path`) and fills the table. Fails with DriverMissing if there is no
// driver, and with NotAvailable if it is older than 11.0 or lacks a required function. Calls only
// cuDriverGetVersion and cuGetProcAddress.
Result<Driver> load_driver(const char* path = "libcuda.so.1",
                           const LoaderDoors& doors = LoaderDoors::of_the_system());

}  // namespace cuvmm
