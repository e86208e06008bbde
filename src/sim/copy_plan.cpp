// SPDX-License-Identifier: Apache-2.0
#include "sim/copy_plan.hpp"

#include <cstring>

#include "sim/address_layout.hpp"
#include "sim/array.hpp"
#include "sim/bulk_access.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

// CU_DEVICE_ATTRIBUTE_MAX_PITCH
constexpr Size most_pitch = 0x7FFF'FFFF;
// The caller may run copies up to this size itself.
constexpr Size most_short_bytes = 1 * MiB;

struct Extent3 {
  Size width, rows, slices;
  bool is_empty() const { return width == 0 || rows == 0 || slices == 0; }
};

// One side as the caller described it.
struct AskedSide {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device_address;
  CUarray array;
  Size x, y, z;
  Size pitch, height;

  // Measured: a side of type HOST may also name device memory, and is then treated as such.
  CUdeviceptr base() const {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device_address;
  }
};

AskedSide source_of(const CUDA_MEMCPY3D& asked) {
  return {asked.srcMemoryType, asked.srcHost, asked.srcDevice, asked.srcArray, asked.srcXInBytes,
          asked.srcY,          asked.srcZ,    asked.srcPitch,  asked.srcHeight};
}

AskedSide target_of(const CUDA_MEMCPY3D& asked) {
  return {asked.dstMemoryType, asked.dstHost, asked.dstDevice, asked.dstArray, asked.dstXInBytes,
          asked.dstY,          asked.dstZ,    asked.dstPitch,  asked.dstHeight};
}

// Arithmetic that remembers overflow.
class Checked {
 public:
  Size sum(Size a, Size b) {
    Size result = 0;
    overflowed_ |= __builtin_add_overflow(a, b, &result);
    return result;
  }
  Size product(Size a, Size b) {
    Size result = 0;
    overflowed_ |= __builtin_mul_overflow(a, b, &result);
    return result;
  }
  bool overflowed() const { return overflowed_; }

 private:
  bool overflowed_ = false;
};

// Measured: a pitch or height of 0 means the size that the copy itself needs. A given one must be
// large enough for the copy even if it is not used; the largest pitch applies only if it is used.
CUresult place_rows(CUdeviceptr base, const AskedSide& asked, const Extent3& extent, CopySide* side,
                    Size* span) {
  Checked checked;
  const Size needed_pitch = checked.sum(asked.x, extent.width);
  const Size needed_height = checked.sum(asked.y, extent.rows);
  const bool uses_pitch = extent.rows > 1 || extent.slices > 1;
  if (asked.pitch != 0 && asked.pitch < needed_pitch) return CUDA_ERROR_INVALID_VALUE;
  if (asked.height != 0 && asked.height < needed_height) return CUDA_ERROR_INVALID_VALUE;
  if (uses_pitch && asked.pitch > most_pitch) return CUDA_ERROR_INVALID_VALUE;
  side->pitch = asked.pitch != 0 ? asked.pitch : needed_pitch;
  const Size height = asked.height != 0 ? asked.height : needed_height;
  side->slice = checked.product(side->pitch, height);
  const Size rows_before = checked.sum(checked.product(asked.z, height), asked.y);
  const Size offset = checked.sum(checked.product(rows_before, side->pitch), asked.x);
  side->address = checked.sum(base, offset);
  *span = checked.sum(checked.product(extent.slices - 1, side->slice),
                      checked.sum(checked.product(extent.rows - 1, side->pitch), extent.width));
  checked.sum(side->address, *span);
  // The card accepts some sums that overflow and faults later; here they are refused.
  return checked.overflowed() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult place_in_array(const AskedSide& asked, const Extent3& extent, CopySide* side) {
  const auto array = find_array(asked.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ArrayShape& shape = array->shape();
  const auto fits = [](Size begin, Size size, Size end) {
    return begin <= end && size <= end - begin;
  };
  if (!fits(asked.x, extent.width, shape.row_bytes) || !fits(asked.y, extent.rows, shape.rows) ||
      !fits(asked.z, extent.slices, shape.slices)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = shape.row_bytes;
  side->slice = shape.row_bytes * shape.rows;
  side->address = array->storage() + asked.z * side->slice + asked.y * side->pitch + asked.x;
  side->device = array->device().ordinal();
  side->memory.device = side->device;
  return CUDA_SUCCESS;
}

CUresult place(const AskedSide& asked, const Extent3& extent, int device, Use use, CopySide* side) {
  side->device = device;
  if (asked.type == CU_MEMORYTYPE_ARRAY) return place_in_array(asked, extent, side);
  const CUdeviceptr base = asked.base();
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  Size span = 0;
  CUresult answer = place_rows(base, asked, extent, side, &span);
  if (answer != CUDA_SUCCESS) return answer;
  answer = name_memory(side->address, span, device, use, &side->memory);
  if (answer != CUDA_SUCCESS) return answer;
  const bool may_be_pageable = asked.type != CU_MEMORYTYPE_DEVICE;
  return side->memory.place == MemoryPlace::Pageable && !may_be_pageable ? CUDA_ERROR_INVALID_VALUE
                                                                         : CUDA_SUCCESS;
}

CopiedRange range_of(const AskedSide& asked, const CUDA_MEMCPY3D& copy) {
  const Extent3 extent{copy.WidthInBytes, copy.Height, copy.Depth};
  if (asked.type == CU_MEMORYTYPE_ARRAY || extent.is_empty()) return {};
  CopySide side;
  CopiedRange range;
  const CUresult placed = place_rows(asked.base(), asked, extent, &side, &range.size);
  range.address = side.address;
  return placed == CUDA_SUCCESS ? range : CopiedRange{};
}

bool is_memory_type(CUmemorytype type) {
  return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

std::byte* view_of(CUdeviceptr address, int device) {
  return Views::at(Process::get().space().viewer_of(address, device), address);
}

bool has_bytes(CUdeviceptr address) {
  return has_backing() || !is_device_address(address);
}

}  // namespace

CopiedRange source_range(const CUDA_MEMCPY3D& copy) {
  return range_of(source_of(copy), copy);
}
CopiedRange target_range(const CUDA_MEMCPY3D& copy) {
  return range_of(target_of(copy), copy);
}

CUresult CopyPlan::make(const CUDA_MEMCPY3D& asked, int source_device, int target_device,
                        CopyPlan* plan) {
  if (!is_memory_type(asked.srcMemoryType) || !is_memory_type(asked.dstMemoryType)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Extent3 extent{asked.WidthInBytes, asked.Height, asked.Depth};
  if (extent.is_empty()) return CUDA_SUCCESS;
  CopyPlan made;
  CUresult answer = place(source_of(asked), extent, source_device, Use::CopySource, &made.source_);
  if (answer != CUDA_SUCCESS) return answer;
  answer = place(target_of(asked), extent, target_device, Use::CopyTarget, &made.target_);
  if (answer != CUDA_SUCCESS) return answer;
  made.asked_ = asked;
  made.width_ = extent.width;
  made.rows_ = extent.rows;
  made.slices_ = extent.slices;
  *plan = std::move(made);
  return CUDA_SUCCESS;
}

bool CopyPlan::can_stage() const {
  return !is_device_address(source_.address);
}

void CopyPlan::stage() {
  if (!has_bytes(target_.address)) return;
  staged_.reset(new std::byte[bytes()]);
  std::byte* next = staged_.get();
  const auto* from = reinterpret_cast<const std::byte*>(source_.address);
  for (Size z = 0; z < slices_; ++z) {
    for (Size y = 0; y < rows_; ++y, next += width_) {
      std::memcpy(next, from + z * source_.slice + y * source_.pitch, width_);
    }
  }
  source_.address = reinterpret_cast<CUdeviceptr>(staged_.get());
  source_.pitch = width_;
  source_.slice = width_ * rows_;
}

Activity CopyPlan::activity() const {
  const auto either_is = [&](MemoryPlace place) {
    return source().place == place || target().place == place;
  };
  if (either_is(MemoryPlace::Pageable)) return Activity::CopyPageable;
  if (either_is(MemoryPlace::Pinned)) return Activity::CopyPinned;
  return source().device == target().device ? Activity::CopyWithinDevice
                                            : Activity::CopyBetweenDevices;
}

void CopyPlan::run() const {
  cost_of(activity(), bytes());
  if (!has_bytes(source_.address) || !has_bytes(target_.address)) return;
  const std::byte* from = view_of(source_.address, source_.device);
  std::byte* to = view_of(target_.address, target_.device);
  const bool rows_touch = source_.pitch == width_ && target_.pitch == width_;
  const Size stretch = rows_touch ? width_ * rows_ : width_;
  const Size stretches = rows_touch ? 1 : rows_;
  for (Size z = 0; z < slices_; ++z) {
    for (Size y = 0; y < stretches; ++y) {
      std::byte* const target = to + z * target_.slice + y * target_.pitch;
      const std::byte* const source = from + z * source_.slice + y * source_.pitch;
      const BulkAccess access{target, source, stretch};
      std::memmove(target, source, stretch);
    }
  }
}

Operation CopyPlan::operation() const {
  return {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
          .run = [plan = *this](Context&) { plan.run(); },
          .duration = bytes() <= most_short_bytes ? Duration::Short : Duration::Long,
          .parameters = asked_};
}

CUresult check_copy(const CUDA_MEMCPY3D& asked, const Context& context) {
  CopyPlan plan;
  return CopyPlan::make(asked, context.device().ordinal(), &plan);
}

Operation copy_operation(const CUDA_MEMCPY3D& asked, const Context& context) {
  CopyPlan plan;
  CopyPlan::make(asked, context.device().ordinal(), &plan);
  Operation operation = plan.operation();
  operation.parameters = asked;  // even an empty copy reports them
  return operation;
}

CUDA_MEMCPY3D linear_copy(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type,
                          CUdeviceptr from, Size size) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = from_type;
  copy.dstMemoryType = to_type;
  if (from_type == CU_MEMORYTYPE_HOST) {
    copy.srcHost = reinterpret_cast<const void*>(from);
  } else {
    copy.srcDevice = from;
  }
  if (to_type == CU_MEMORYTYPE_HOST) {
    copy.dstHost = reinterpret_cast<void*>(to);
  } else {
    copy.dstDevice = to;
  }
  copy.WidthInBytes = size;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& copy) {
  CUDA_MEMCPY3D same{};
  same.srcXInBytes = copy.srcXInBytes;
  same.srcY = copy.srcY;
  same.srcMemoryType = copy.srcMemoryType;
  same.srcHost = copy.srcHost;
  same.srcDevice = copy.srcDevice;
  same.srcArray = copy.srcArray;
  same.srcPitch = copy.srcPitch;
  same.dstXInBytes = copy.dstXInBytes;
  same.dstY = copy.dstY;
  same.dstMemoryType = copy.dstMemoryType;
  same.dstHost = copy.dstHost;
  same.dstDevice = copy.dstDevice;
  same.dstArray = copy.dstArray;
  same.dstPitch = copy.dstPitch;
  same.WidthInBytes = copy.WidthInBytes;
  same.Height = copy.Height;
  same.Depth = 1;
  return same;
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY3D_PEER& copy) {
  CUDA_MEMCPY3D same{};
  same.srcXInBytes = copy.srcXInBytes;
  same.srcY = copy.srcY;
  same.srcZ = copy.srcZ;
  same.srcMemoryType = copy.srcMemoryType;
  same.srcHost = copy.srcHost;
  same.srcDevice = copy.srcDevice;
  same.srcArray = copy.srcArray;
  same.srcPitch = copy.srcPitch;
  same.srcHeight = copy.srcHeight;
  same.dstXInBytes = copy.dstXInBytes;
  same.dstY = copy.dstY;
  same.dstZ = copy.dstZ;
  same.dstMemoryType = copy.dstMemoryType;
  same.dstHost = copy.dstHost;
  same.dstDevice = copy.dstDevice;
  same.dstArray = copy.dstArray;
  same.dstPitch = copy.dstPitch;
  same.dstHeight = copy.dstHeight;
  same.WidthInBytes = copy.WidthInBytes;
  same.Height = copy.Height;
  same.Depth = copy.Depth;
  return same;
}

}  // namespace cuvmm::sim
