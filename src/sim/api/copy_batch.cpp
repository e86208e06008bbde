// SPDX-License-Identifier: Apache-2.0
// Many copies in one call. All measured on an H200.
#include <cstdint>
#include <vector>

#include "sim/array.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/copy_call.hpp"
#include "sim/device.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

constexpr size_t no_single_copy = SIZE_MAX;

struct BatchCopy {
  CopyPlan plan;
  CUmemcpySrcAccessOrder order;
};

bool is_order(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}
bool are_flags(unsigned flags) {
  return (flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

// Finds the stream of a batch. Refuses the legacy stream, and a captured one without invalidating
// its capture.
CUresult find_batch_stream(const std::shared_ptr<Context>& context, CUstream named,
                           std::shared_ptr<Stream>* stream) {
  *stream = find_stream(context, named);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((*stream)->kind == StreamKind::Legacy) return CUDA_ERROR_INVALID_VALUE;
  return is_captured(**stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

// Submits one copy. Returns whether the call must wait for it, as the copy's access order limits
// when its source may be read.
bool give(const std::shared_ptr<Stream>& stream, BatchCopy& copy) {
  const NamedMemory source = copy.plan.source();
  bool waits = false;
  if (copy.order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
    waits = source.place == MemoryPlace::Pageable;
  } else if (copy.order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
    const bool within_host = source.is_host() && copy.plan.target().is_host();
    const bool stages =
        copy.plan.can_stage() && (source.place == MemoryPlace::Pageable || within_host);
    if (stages) copy.plan.stage();
    waits = !stages;
  }
  submit_now(stream, copy.plan.operation());
  return waits;
}

CUresult give_all(const std::shared_ptr<Context>& context, const std::shared_ptr<Stream>& stream,
                  std::vector<BatchCopy>& copies) {
  bool waits = false;
  for (BatchCopy& copy : copies) waits = give(stream, copy) || waits;
  if (!waits) return CUDA_SUCCESS;
  Queue::wait_for(stream->queue->last());
  return context->sticky_error();
}

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                    CUmemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count,
                    size_t* failed, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  *failed = no_single_copy;
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attributes == nullptr || first_copies == nullptr || attribute_count == 0 ||
      attribute_count > count || first_copies[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<Stream> stream;
  CUresult answer = find_batch_stream(context, named, &stream);
  if (answer != CUDA_SUCCESS) return answer;
  std::vector<BatchCopy> copies(count);
  for (size_t group = 0; group < attribute_count; ++group) {
    const CUmemcpyAttributes& shared = attributes[group];
    const size_t first = first_copies[group];
    const size_t end = group + 1 < attribute_count ? first_copies[group + 1] : count;
    if (first >= end || end > count) return CUDA_ERROR_INVALID_VALUE;
    if (!is_order(shared.srcAccessOrder) || !are_flags(shared.flags)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = first; i < end; ++i) {
      copies[i].order = shared.srcAccessOrder;
      answer = CopyPlan::make(
          linear_copy(CU_MEMORYTYPE_UNIFIED, to[i], CU_MEMORYTYPE_UNIFIED, from[i], sizes[i]),
          context->device().ordinal(), &copies[i].plan);
      if (answer == CUDA_SUCCESS && copies[i].plan.is_empty()) answer = CUDA_ERROR_INVALID_VALUE;
      if (answer == CUDA_SUCCESS) continue;
      *failed = i;
      return answer;
    }
  }
  return give_all(context, stream, copies);
}

// Boxes -------------------------------------------------------------------------------------------

// The bytes of an element of the arrays involved; 1 without arrays, 0 if two arrays differ.
Size element_bytes_of(const CUDA_MEMCPY3D_BATCH_OP& asked) {
  Size found = 1;
  bool known = false;
  for (const CUmemcpy3DOperand* side : {&asked.src, &asked.dst}) {
    if (side->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    const auto array = find_array(side->op.array.array);
    if (array == nullptr) return 0;
    const Size bytes = array->shape().element_bytes;
    if (known && bytes != found) return 0;
    found = bytes;
    known = true;
  }
  return found;
}

bool is_operand(const CUmemcpy3DOperand& side) {
  return side.type == CU_MEMCPY_OPERAND_TYPE_POINTER || side.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
}

CUDA_MEMCPY3D one_of_batch(const CUDA_MEMCPY3D_BATCH_OP& asked, Size element) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = asked.extent.width * element;
  copy.Height = asked.extent.height;
  copy.Depth = asked.extent.depth;
  if (asked.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& side = asked.src.op.array;
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = side.array;
    copy.srcXInBytes = side.offset.x * element;
    copy.srcY = side.offset.y;
    copy.srcZ = side.offset.z;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = asked.src.op.ptr.ptr;
    copy.srcPitch = asked.src.op.ptr.rowLength * element;
    copy.srcHeight = asked.src.op.ptr.layerHeight;
  }
  if (asked.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& side = asked.dst.op.array;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = side.array;
    copy.dstXInBytes = side.offset.x * element;
    copy.dstY = side.offset.y;
    copy.dstZ = side.offset.z;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = asked.dst.op.ptr.ptr;
    copy.dstPitch = asked.dst.op.ptr.rowLength * element;
    copy.dstHeight = asked.dst.op.ptr.layerHeight;
  }
  return copy;
}

CUresult plan_box(const CUDA_MEMCPY3D_BATCH_OP& asked, int device, BatchCopy* copy) {
  if (!is_operand(asked.src) || !is_operand(asked.dst)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_order(asked.srcAccessOrder) || !are_flags(asked.flags)) return CUDA_ERROR_INVALID_VALUE;
  const Size element = element_bytes_of(asked);
  // A width that overflows 64 bits fits into no array either.
  if (element == 0 || asked.extent.width > unlimited / element) return CUDA_ERROR_INVALID_VALUE;
  copy->order = asked.srcAccessOrder;
  const CUresult answer = CopyPlan::make(one_of_batch(asked, element), device, &copy->plan);
  if (answer != CUDA_SUCCESS) return answer;
  return copy->plan.is_empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult copy_boxes(size_t count, CUDA_MEMCPY3D_BATCH_OP* asked, size_t* failed,
                    unsigned long long flags, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  *failed = no_single_copy;
  if (count == 0 || asked == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  CUresult answer = find_batch_stream(context, named, &stream);
  if (answer != CUDA_SUCCESS) return answer;
  std::vector<BatchCopy> copies(count);
  for (size_t i = 0; i < count; ++i) {
    answer = plan_box(asked[i], context->device().ordinal(), &copies[i]);
    if (answer == CUDA_SUCCESS) continue;
    *failed = i;
    return answer;
  }
  return give_all(context, stream, copies);
}

}  // namespace

CUVMM_SIM(cuMemcpyBatchAsync)
(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* first_copies, size_t attribute_count, size_t* failed, CUstream stream) {
  size_t ignored = 0;
  return copy_batch(to, from, sizes, count, attributes, first_copies, attribute_count,
                    failed != nullptr ? failed : &ignored, stream);
}
CUVMM_SIM(cuMemcpyBatchAsync_v2)
(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* first_copies, size_t attribute_count, CUstream stream) {
  size_t ignored = 0;
  return copy_batch(to, from, sizes, count, attributes, first_copies, attribute_count, &ignored,
                    stream);
}
CUVMM_SIM(cuMemcpy3DBatchAsync)
(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, size_t* failed, unsigned long long flags,
 CUstream stream) {
  size_t ignored = 0;
  return copy_boxes(count, boxes, failed != nullptr ? failed : &ignored, flags, stream);
}
CUVMM_SIM(cuMemcpy3DBatchAsync_v2)
(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, unsigned long long flags, CUstream stream) {
  size_t ignored = 0;
  return copy_boxes(count, boxes, &ignored, flags, stream);
}

}  // namespace cuvmm::sim
