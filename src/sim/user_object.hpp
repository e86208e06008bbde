// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/cuda.hpp"
#include "sim/registry.hpp"

namespace cuvmm::sim {

// An object whose destructor the program wants called when no graph uses it any more.
class UserObject {
 public:
  UserObject(void* object, CUhostFn destroy) : object_(object), destroy_(destroy) {}
  ~UserObject();
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  // The program's own references also keep the object alive. Both guarded by graph_lock().
  unsigned own_references = 0;
  std::shared_ptr<UserObject> kept_by_program;

  CUuserObject handle() const {
    return reinterpret_cast<CUuserObject>(const_cast<UserObject*>(this));
  }

 private:
  void* const object_;
  const CUhostFn destroy_;
};

// The objects that the program may name. A reference held by a graph also keeps the handle valid.
struct UserObjects {
  static std::shared_ptr<UserObject> find(CUuserObject handle);
  static void add(const std::shared_ptr<UserObject>& object);
};

// The references that a graph holds.
class UserReference {
 public:
  UserReference(std::shared_ptr<UserObject> object, unsigned held)
      : count(held), object_(std::move(object)) {}
  const std::shared_ptr<UserObject>& object() const { return object_; }
  std::shared_ptr<UserReference> duplicate() const {
    return std::make_shared<UserReference>(object_, count);
  }

  unsigned count;

 private:
  const std::shared_ptr<UserObject> object_;
};

}  // namespace cuvmm::sim
