// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_work.hpp"

#include "sim/context.hpp"
#include "sim/copy_plan.hpp"
#include "sim/event.hpp"
#include "sim/graph_memory.hpp"
#include "sim/launch.hpp"
#include "sim/library.hpp"
#include "sim/process.hpp"
#include "sim/value_batch.hpp"

namespace cuvmm::sim {
namespace {

MappedSide side_at(const CopiedRange& range) {
  using Kind = MappedSide::Kind;
  MappedSide side{.address = range.address};
  for (CUdeviceptr at = range.address; at < range.address + range.size;) {
    const auto mapping = Process::get().space().mapping_at(at);
    if (!mapping) return {};
    const Kind here = mapping->chunk->device() == nullptr ? Kind::OnHost : Kind::OnDevices;
    side.kind = side.kind == Kind::NotMapped || side.kind == here ? here : Kind::OnBoth;
    at = mapping->end();
  }
  return side;
}

NodeWork work_of(Operation operation, const std::shared_ptr<Context>& context) {
  NodeWork work{.operation = std::make_shared<Operation>(std::move(operation)), .context = context};
  if (const auto* const copy = std::get_if<CUDA_MEMCPY3D>(&work.operation->parameters)) {
    work.copies_from = side_at(source_range(*copy));
    work.copies_to = side_at(target_range(*copy));
  }
  return work;
}

// A null handle means the current context. Returns nullptr if there is no such context.
std::shared_ptr<Context> named_context(CUcontext context) {
  return context == nullptr ? current_context().context : Process::get().contexts.find(context);
}

std::vector<int> accessors(const CUDA_MEM_ALLOC_NODE_PARAMS& asked) {
  std::vector<int> devices{asked.poolProps.location.id};
  for (size_t i = 0; i < asked.accessDescCount; ++i) {
    const CUmemAccessDesc& access = asked.accessDescs[i];
    if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) devices.push_back(access.location.id);
  }
  return devices;
}

bool are_devices(const CUmemAccessDesc* access, size_t count) {
  if (count != 0 && access == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        Process::get().device(access[i].location.id) == nullptr) {
      return false;
    }
  }
  return true;
}

}  // namespace

CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& asked) {
  return {.func = asked.func,
          .gridDimX = asked.gridDimX,
          .gridDimY = asked.gridDimY,
          .gridDimZ = asked.gridDimZ,
          .blockDimX = asked.blockDimX,
          .blockDimY = asked.blockDimY,
          .blockDimZ = asked.blockDimZ,
          .sharedMemBytes = asked.sharedMemBytes,
          .kernelParams = asked.kernelParams,
          .extra = asked.extra};
}

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS* asked, NodeWork* work) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  // A function belongs to one context; a kernel runs in the named context, or else the current one.
  if (const auto function = functions().find(asked->func)) {
    const auto module = function->module();
    if (module != nullptr) context = module->context.lock();
  } else if (asked->func == nullptr && asked->ctx != nullptr) {
    context = named_context(asked->ctx);
  } else {
    CUVMM_SIM_CONTEXT(current);
    context = current;
  }
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Operation operation;
  const CUresult made = make_launch(*asked, context, Cooperation::None, operation);
  if (made == CUDA_SUCCESS) *work = work_of(std::move(operation), context);
  return made;
}

CUresult copy_work(const CUDA_MEMCPY3D* asked, CUcontext context, NodeWork* work) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto where = named_context(context);
  if (where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult checked = check_copy(*asked, *where);
  if (checked == CUDA_SUCCESS) *work = work_of(copy_operation(*asked, *where), where);
  return checked;
}

CUresult set_work(const CUDA_MEMSET_NODE_PARAMS* asked, CUcontext context, NodeWork* work) {
  if (asked == nullptr || asked->width == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto where = named_context(context);
  if (where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult checked = check_set(*asked, *where);
  if (checked == CUDA_SUCCESS) *work = work_of(set_operation(*asked, *where), where);
  return checked;
}

CUresult host_work(const CUDA_HOST_NODE_PARAMS* asked, NodeWork* work) {
  if (asked == nullptr || asked->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *work = work_of(make_host_call(*asked), nullptr);
  return CUDA_SUCCESS;
}

CUresult batch_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS* asked, NodeWork* work) {
  constexpr unsigned most = 256;
  if (asked == nullptr || asked->paramArray == nullptr || asked->count == 0 ||
      asked->count > most || asked->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto where = named_context(asked->ctx);
  if (where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  const CUresult made =
      make_value_batch({asked->paramArray, asked->paramArray + asked->count}, &operation);
  if (made == CUDA_SUCCESS) *work = work_of(std::move(operation), where);
  return made;
}

CUresult event_work(CUgraphNodeType type, CUevent event, NodeWork* work) {
  auto found = Process::get().events.find(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *work = work_of({.type = type, .parameters = std::move(found)}, nullptr);
  return CUDA_SUCCESS;
}

CUresult allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS* asked, NodeWork* work) {
  if (asked == nullptr || asked->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUmemPoolProps& properties = asked->poolProps;
  Device* device = Process::get().device(properties.location.id);
  if (device == nullptr || properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      !are_devices(asked->accessDescs, asked->accessDescCount)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto memory = GraphMemory::create(*device, asked->bytesize, accessors(*asked));
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->access.assign(asked->accessDescs, asked->accessDescs + asked->accessDescCount);
  CUDA_MEM_ALLOC_NODE_PARAMS shown = *asked;
  shown.accessDescs = memory->access.data();
  shown.dptr = memory->address;
  *work = work_of({.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .parameters = shown}, nullptr);
  work->memory = memory;
  asked->dptr = memory->address;
  return CUDA_SUCCESS;
}

CUresult free_work(CUdeviceptr address, NodeWork* work) {
  auto memory = find_graph_memory(address);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *work = work_of({.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .parameters = address}, nullptr);
  work->memory = std::move(memory);
  return CUDA_SUCCESS;
}

NodeWork captured_work(Operation operation) {
  return work_of(std::move(operation), nullptr);
}

NodeWork empty_work() {
  return work_of({.type = CU_GRAPH_NODE_TYPE_EMPTY}, nullptr);
}

NodeWork child_work(std::shared_ptr<Graph> graph) {
  NodeWork work = work_of({.type = CU_GRAPH_NODE_TYPE_GRAPH}, nullptr);
  work.child = std::move(graph);
  return work;
}

CUresult child_work(CUgraph handle, NodeWork* work) {
  const auto graph = Process::get().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  *work = child_work(graph->clone());
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
