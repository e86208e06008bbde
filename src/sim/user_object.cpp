// SPDX-License-Identifier: Apache-2.0
#include "sim/user_object.hpp"

#include <mutex>
#include <unordered_map>

#include "base/made_once.hpp"
#include "sim/entry.hpp"

namespace cuvmm::sim {
namespace {

struct Known {
  static Known& get() {
    static constinit MadeOnce<Known> all;
    return all.get();
  }
  Lock lock{LockOrder::SimHandles};  // guards the members below
  std::unordered_map<CUuserObject, std::weak_ptr<UserObject>> objects;
};

}  // namespace

UserObject::~UserObject() {
  {
    Known& known = Known::get();
    const Holding holding{known.lock};
    known.objects.erase(handle());
  }
  const InHostFunction inside;
  if (destroy_ != nullptr) destroy_(object_);
}

std::shared_ptr<UserObject> UserObjects::find(CUuserObject handle) {
  Known& known = Known::get();
  const Holding holding{known.lock};
  const auto found = known.objects.find(handle);
  return found == known.objects.end() ? nullptr : found->second.lock();
}

void UserObjects::add(const std::shared_ptr<UserObject>& object) {
  Known& known = Known::get();
  const Holding holding{known.lock};
  known.objects[object->handle()] = object;
}

}  // namespace cuvmm::sim
