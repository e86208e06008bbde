// SPDX-License-Identifier: Apache-2.0
#include "sim/tables/context_storage.hpp"

#include <map>
#include <vector>

#include "base/lock.hpp"
#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/process.hpp"
#include "sim/tables/private_table.hpp"

namespace cuvmm::sim {
namespace {

struct StoredValue {
  void* key = nullptr;
  void* value = nullptr;
  ContextValueEnd end = nullptr;
};

struct ContextStorage {
  static ContextStorage& get() {
    static constinit MadeOnce<ContextStorage> storage;
    return storage.get();
  }
  SharedLock lock{LockOrder::SimHandles};  // guards the members below
  std::map<CUcontext, std::vector<StoredValue>> values;
};

StoredValue* find(std::vector<StoredValue>& values, void* key) {
  for (StoredValue& stored : values) {
    if (stored.key == key) return &stored;
  }
  return nullptr;
}

// A null context means the current one.
CUcontext resolved(CUcontext context) {
  if (context != nullptr)
    return Process::get().contexts.find(context) != nullptr ? context : nullptr;
  const auto current = ContextStack::current();
  return current == nullptr ? nullptr : current->handle();
}

CUresult put(CUcontext asked, void* key, void* value, ContextValueEnd end) {
  const CUcontext context = resolved(asked);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  store_with_context(context, key, value, end);
  return CUDA_SUCCESS;
}

CUresult remove(CUcontext asked, void* key) {
  const CUcontext context = resolved(asked);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return forget_stored(context, key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult get(void** value, CUcontext asked, void* key) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext context = resolved(asked);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return find_stored(context, key, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

void store_with_context(CUcontext context, void* key, void* value, ContextValueEnd end) {
  ContextStorage& storage = ContextStorage::get();
  const Writing writing{storage.lock};
  std::vector<StoredValue>& values = storage.values[context];
  if (StoredValue* known = find(values, key)) {
    *known = {key, value, end};
  } else {
    values.push_back({key, value, end});
  }
}

bool forget_stored(CUcontext context, void* key) {
  ContextStorage& storage = ContextStorage::get();
  const Writing writing{storage.lock};
  const auto values = storage.values.find(context);
  if (values == storage.values.end()) return false;
  return std::erase_if(values->second,
                       [&](const StoredValue& stored) { return stored.key == key; }) != 0;
}

bool find_stored(CUcontext context, void* key, void** value) {
  ContextStorage& storage = ContextStorage::get();
  const Reading reading{storage.lock};
  const auto values = storage.values.find(context);
  const StoredValue* stored = values == storage.values.end() ? nullptr : find(values->second, key);
  if (stored == nullptr) return false;
  *value = stored->value;
  return true;
}

void end_stored(CUcontext context) {
  ContextStorage& storage = ContextStorage::get();
  std::vector<StoredValue> ended;
  {
    const Writing writing{storage.lock};
    const auto values = storage.values.find(context);
    if (values == storage.values.end()) return;
    ended = std::move(values->second);
    storage.values.erase(values);
  }
  for (const StoredValue& stored : ended) {
    if (stored.end != nullptr) stored.end(context, stored.key, stored.value);
  }
}

const void* const* tables::context_storage() {
  static const void* const entries[] = {reinterpret_cast<const void*>(&put),
                                        reinterpret_cast<const void*>(&remove),
                                        reinterpret_cast<const void*>(&get), nullptr};
  return entries;
}

}  // namespace cuvmm::sim
