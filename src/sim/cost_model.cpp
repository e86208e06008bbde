// SPDX-License-Identifier: Apache-2.0
#include "sim/cost_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

namespace cuvmm::sim {
namespace {

struct Cost {
  Size bytes;
  double microseconds;
};

// What was measured at these sizes; between them on a straight line, past the last at its bytes
// per microsecond.
using Curve = std::span<const Cost>;

constexpr Cost blocking_alloc[] = {{0, 30}, {2 * MiB, 30}, {GiB, 122}, {16 * GiB, 975}};
constexpr Cost blocking_free[] = {{0, 27}, {2 * MiB, 27}, {GiB, 314}, {16 * GiB, 6080}};
constexpr Cost create[] = {{0, 9.8}, {2 * MiB, 9.8}, {GiB, 50}};
// Granting access is in it: 512 mapped chunks cost the same under one cuMemSetAccess as under 512.
constexpr Cost map[] = {{0, 25},        {16 * MiB, 25},  {32 * MiB, 23.1},
                        {64 * MiB, 25}, {128 * MiB, 29}, {GiB, 88}};
constexpr Cost unmap[] = {{0, 18}, {16 * MiB, 18}, {GiB, 40}};
constexpr Cost release[] = {{0, 9}, {GiB, 360}};  // the small end is what 2 MiB of cuMemFree leave
constexpr Cost device_copy[] = {
    {0, 10}, {2 * MiB, 10}, {64 * MiB, 42}, {GiB, 511}, {4 * GiB, 2006}};
constexpr Cost pageable_copy[] = {{0, 10}, {32 * MiB, 2722}};
constexpr Cost device_set[] = {{0, 10}};
constexpr Cost async_alloc[] = {{0, 0.7}};
constexpr Cost async_free[] = {{0, 0.5}};
constexpr Cost export_fd[] = {{0, 999}};
constexpr Cost import_fd[] = {{0, 56}};
constexpr Cost launch[] = {{0, 2.81}};
constexpr Cost event[] = {{0, 0.12}};
constexpr Cost capture_query[] = {{0, 0.012}};

Curve curve_of(Row row) {
  switch (row) {
    case Row::cuMemAlloc_v2:
    case Row::cuMemAllocPitch_v2:
      return blocking_alloc;
    case Row::cuMemFree_v2:
      return blocking_free;
    case Row::cuMemAllocAsync:
    case Row::cuMemAllocFromPoolAsync:
      return async_alloc;
    case Row::cuMemFreeAsync:
      return async_free;
    case Row::cuMemCreate:
      return create;
    case Row::cuMemMap:
      return map;
    case Row::cuMemUnmap:
      return unmap;
    case Row::cuMemRelease:
      return release;
    case Row::cuMemExportToShareableHandle:
      return export_fd;
    case Row::cuMemImportFromShareableHandle:
      return import_fd;
    case Row::cuMemcpyDtoD_v2:
    case Row::cuMemcpyDtoDAsync_v2:
      return device_copy;
    case Row::cuMemcpyHtoD_v2:
    case Row::cuMemcpyHtoDAsync_v2:
    case Row::cuMemcpyDtoH_v2:
    case Row::cuMemcpyDtoHAsync_v2:
      return pageable_copy;
    case Row::cuMemsetD8_v2:
    case Row::cuMemsetD8Async:
    case Row::cuMemsetD32_v2:
    case Row::cuMemsetD32Async:
      return device_set;
    case Row::cuLaunchKernel:
    case Row::cuLaunchKernelEx:
    case Row::cuLaunchCooperativeKernel:
      return launch;
    case Row::cuEventRecord:
    case Row::cuEventRecordWithFlags:
    case Row::cuEventQuery:
    case Row::cuStreamQuery:
      return event;
    case Row::cuStreamIsCapturing:
    case Row::cuFuncGetParamInfo:
      return capture_query;
    default:
      return {};
  }
}

double value_at(Curve curve, Size bytes) {
  const auto above = std::find_if(curve.begin(), curve.end(),
                                  [&](const Cost& point) { return point.bytes >= bytes; });
  if (above == curve.begin()) return above->microseconds;
  const Cost& below = *std::prev(above);
  if (above == curve.end()) {
    return below.bytes == 0 ? below.microseconds
                            : below.microseconds * (double(bytes) / double(below.bytes));
  }
  const double share = double(bytes - below.bytes) / double(above->bytes - below.bytes);
  return below.microseconds + share * (above->microseconds - below.microseconds);
}

// Entry asks at every call, so curves are looked up once.
const std::array<Curve, row_count>& curves() {
  static const auto all = [] {
    std::array<Curve, row_count> made;
    for (std::size_t row = 0; row < row_count; ++row) made[row] = curve_of(Row(row));
    return made;
  }();
  return all;
}

std::atomic<std::int64_t> modelled_ns{0};

}  // namespace

void cost_of(Row row, Size bytes) {
  const Curve curve = curves()[static_cast<std::size_t>(row)];
  if (curve.empty()) return;
  const double least = curve.front().microseconds;
  const double cost = bytes == 0 ? least : value_at(curve, bytes) - least;
  modelled_ns.fetch_add(static_cast<std::int64_t>(cost * 1000), std::memory_order_relaxed);
}

double modelled_microseconds() {
  return double(modelled_ns.load(std::memory_order_relaxed)) / 1000;
}

}  // namespace cuvmm::sim
