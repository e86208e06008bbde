// SPDX-License-Identifier: Apache-2.0
// What libcuvmm.so exports: every call goes to the process's engine, which is the preload library's
// if it is loaded.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

#include "capi/answer.hpp"
#include "capi/table.hpp"

namespace {

using cuvmm::capi::Table;

// The preload library is loaded at startup or never, so every lookup gives the same result.
const Table& table() {
  static std::atomic<const Table*> known{nullptr};
  const Table* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  const auto entry =
      reinterpret_cast<decltype(&cuvmm_engine_v1)>(::dlsym(RTLD_DEFAULT, "cuvmm_engine_v1"));
  found = entry != nullptr ? entry() : nullptr;
  if (found == nullptr) found = &cuvmm::capi::own_table();
  known.store(found, std::memory_order_release);
  return *found;
}

bool has(std::size_t end_of_member) {
  return table().size >= end_of_member;
}

cuvmm_status too_old(cuvmm_error* error) {
  return cuvmm::capi::refuse({.kind = cuvmm::ErrorKind::NotSupported,
                              .doing = "call the preload library",
                              .subject = "it is older than libcuvmm"},
                             error);
}

}  // namespace

namespace cuvmm::capi {
const cuvmm_engine_kind kind_of_this_engine = CUVMM_ENGINE_OWN;
}

extern "C" {

#define CUVMM_TOO_OLD too_old(error)
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise)            \
  __attribute__((visibility("default"))) returns cuvmm_##name parameters {     \
    if (!has(offsetof(Table, name) + sizeof(Table::name))) return (otherwise); \
    return table().name arguments;                                             \
  }
#include "capi/api.def"
#undef CUVMM_CALL
#undef CUVMM_TOO_OLD

__attribute__((visibility("default"))) uint32_t cuvmm_version(void) {
  return cuvmm::capi::version_number;
}

__attribute__((visibility("default"))) const char* cuvmm_status_name(cuvmm_status status) {
  return cuvmm::capi::name_of(status);
}
}
