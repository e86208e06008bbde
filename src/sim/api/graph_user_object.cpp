// SPDX-License-Identifier: Apache-2.0
#include <climits>

#include "sim/bodies.hpp"
#include "sim/graph.hpp"
#include "sim/process.hpp"
#include "sim/user_object.hpp"

namespace cuvmm::sim {
namespace {

// Returns false if the program holds fewer references. The caller holds graph_lock().
bool release_own(UserObject& object, unsigned count) {
  if (count > object.own_references) return false;
  object.own_references -= count;
  if (object.own_references == 0) object.kept_by_program = nullptr;
  return true;
}

}  // namespace

CUVMM_SIM(cuUserObjectCreate)
(CUuserObject* out, void* what, CUhostFn destroy, unsigned count, unsigned flags) {
  if (out == nullptr || destroy == nullptr || count == 0 || count > INT_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto object = std::make_shared<UserObject>(what, destroy);
  object->own_references = count;
  object->kept_by_program = object;
  UserObjects::add(object);
  *out = object->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuUserObjectRetain)(CUuserObject handle, unsigned count) {
  const auto object = UserObjects::find(handle);
  if (object == nullptr || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{graph_lock()};
  object->own_references += count;
  object->kept_by_program = object;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuUserObjectRelease)(CUuserObject handle, unsigned count) {
  const auto object = UserObjects::find(handle);  // destroyed after the lock
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{graph_lock()};
  return release_own(*object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuGraphRetainUserObject)
(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
  const auto object = UserObjects::find(handle);
  if (object == nullptr || count == 0 || count > INT_MAX ||
      (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Holding holding{graph_lock()};
  const auto graph = Process::get().graphs.find(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_GRAPH_USER_OBJECT_MOVE && !release_own(*object, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& reference : graph->user_references) {
    if (reference->object() != object) continue;
    reference->count += count;
    return CUDA_SUCCESS;
  }
  graph->user_references.push_back(std::make_shared<UserReference>(object, count));
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphReleaseUserObject)(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  const auto object = UserObjects::find(handle);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{graph_lock()};
  const auto graph = Process::get().graphs.find(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& references = graph->user_references;
  for (auto reference = references.begin(); reference != references.end(); ++reference) {
    if ((*reference)->object() != object || (*reference)->count < count) continue;
    (*reference)->count -= count;
    if ((*reference)->count == 0) references.erase(reference);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cuvmm::sim
