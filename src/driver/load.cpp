// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>

#include "driver/absent_call.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

namespace {

constexpr int oldest_driver = 11000;
constexpr int per_thread_since = 7000;

// Stands in for a function that the driver lacks.
template <Call call, class Function>
struct Absent;
template <Call call, class... Arguments>
struct Absent<call, CUresult (*)(Arguments...)> {
  static CUresult answer(Arguments...) {
    last_absent_call = &info(call);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
};

class SymbolSource {
 public:
  SymbolSource(const LoaderDoors& doors, void* library) : doors_(doors), library_(library) {
    get_v2_ = by_symbol<PFN_cuGetProcAddress_v12000>("cuGetProcAddress_v2");
    get_v1_ = by_symbol<PFN_cuGetProcAddress_v11030>("cuGetProcAddress");
  }

  template <class Function>
  Function by_symbol(const char* symbol) const {
    return reinterpret_cast<Function>(doors_.symbol(library_, symbol));
  }

  // Prefers cuGetProcAddress, the interface that the driver recommends. Where several versions of a
  // function share a name, its answer may be of a newer version with another signature, so a row
  // that a newer version has replaced is looked up by its symbol, which is unambiguous.
  // cuGetProcAddress does not know per-thread forms below the version that introduced them.
  void* find(const CallInfo& call, const char* symbol, cuuint64_t flags, int driver_version) const {
    if (driver_version < call.since) return nullptr;
    const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const int version = per_thread ? std::max(call.since, per_thread_since) : call.since;
    void* found = nullptr;
    if (call.until == Now) {
      if (get_v2_ != nullptr) {
        CUdriverProcAddressQueryResult status{};
        if (get_v2_(call.name.data(), &found, version, flags, &status) != CUDA_SUCCESS) {
          found = nullptr;
        }
      } else if (get_v1_ != nullptr &&
                 get_v1_(call.name.data(), &found, version, flags) != CUDA_SUCCESS) {
        found = nullptr;
      }
    }
    return found != nullptr ? found : doors_.symbol(library_, symbol);
  }

 private:
  const LoaderDoors& doors_;
  void* library_;
  PFN_cuGetProcAddress_v12000 get_v2_;
  PFN_cuGetProcAddress_v11030 get_v1_;
};

// Fills a row, with its stand-in if the driver lacks it. Not inlined, since it has some four
// hundred callers.
[[gnu::noinline]] void fill(Driver& driver, const SymbolSource& source, Call call, void* absent) {
  const CallInfo& row = info(call);
  void* const legacy =
      source.find(row, row.symbol, CU_GET_PROC_ADDRESS_LEGACY_STREAM, driver.version);
  driver.present[static_cast<std::size_t>(call)] = legacy != nullptr;
  FunctionPair pair{.legacy = legacy != nullptr ? legacy : absent, .per_thread = nullptr};
  pair.per_thread = pair.legacy;
  if (row.per_thread_symbol != nullptr) {
    void* const per_thread = source.find(
        row, row.per_thread_symbol, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, driver.version);
    pair.per_thread = per_thread != nullptr ? per_thread : absent;
  }
  driver.set_functions(call, pair);
}

template <Call call, class Function>
void* absent(Function) {
  return reinterpret_cast<void*>(&Absent<call, Function>::answer);
}

Result<void> require_all(const Driver& driver) {
  for (std::size_t i = 0; i < call_count; ++i) {
    const CallInfo& row = all_calls()[i];
    if (row.need == Need::Required && !driver.present[i]) {
      return Error{.kind = ErrorKind::NotAvailable,
                   .doing = "load driver",
                   .subject = row.symbol,
                   .asked = static_cast<Size>(row.since),
                   .available = static_cast<Size>(driver.version)};
    }
  }
  return {};
}

}  // namespace

void* LoaderDoors::open_by_system(const char* path) {
  return ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void* LoaderDoors::find_by_system(void* library, const char* name) {
  return ::dlsym(library, name);
}

Result<Driver> load_driver(const char* path, const LoaderDoors& doors) {
  void* library = doors.open(path);
  if (library == nullptr) {
    return Error{
        .kind = ErrorKind::DriverMissing, .doing = "load driver", .subject = "no libcuda.so.1"};
  }
  const SymbolSource source{doors, library};
  const auto get_version = source.by_symbol<PFN_cuDriverGetVersion_v2020>("cuDriverGetVersion");
  Driver driver{};
  if (get_version == nullptr || get_version(&driver.version) != CUDA_SUCCESS) {
    return Error{
        .kind = ErrorKind::DriverMissing, .doing = "load driver", .subject = "not a CUDA driver"};
  }
  if (driver.version < oldest_driver) {
    return Error{.kind = ErrorKind::NotAvailable,
                 .doing = "load driver",
                 .asked = oldest_driver,
                 .available = static_cast<Size>(driver.version)};
  }
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  fill(driver, source, Call::symbol, absent<Call::symbol>(driver.name));
#define CUVMM_API_OLD(name, symbol, since, until, flavours, effect, need) \
  fill(driver, source, Call::symbol, absent<Call::symbol>(driver.name##_v##since));
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
  TRY(require_all(driver));
  return driver;
}

}  // namespace cuvmm
