// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/lock.hpp"

namespace cuvmm::sim {

// The objects that the program holds handles to. A handle is the object's address, unless the
// object defines handle(). Handles are looked up, so a stale or foreign handle is detected instead
// of dereferenced.
template <class Object, class Handle>
class Registry {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const Writing writing{lock_};
    const Handle handle = handle_of(object.get());
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  std::shared_ptr<Object> find(Handle handle) const {
    const Reading reading{lock_};
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const Writing writing{lock_};
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  std::vector<std::shared_ptr<Object>> all() const {
    const Reading reading{lock_};
    std::vector<std::shared_ptr<Object>> objects;
    objects.reserve(objects_.size());
    for (const auto& [handle, object] : objects_) objects.push_back(object);
    return objects;
  }

  std::size_t size() const {
    const Reading reading{lock_};
    return objects_.size();
  }

  static Handle handle_of(const Object* object) {
    if constexpr (requires { object->handle(); }) {
      return object->handle();
    } else {
      return reinterpret_cast<Handle>(const_cast<Object*>(object));
    }
  }

 private:
  mutable SharedLock lock_{LockOrder::SimHandles};  // guards the members below
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace cuvmm::sim
