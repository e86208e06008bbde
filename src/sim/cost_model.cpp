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

// The measured costs at these sizes. Between two points the cost is interpolated; beyond the last
// one it grows at the last point's bytes per microsecond.
using Curve = std::span<const Cost>;

constexpr Cost blocking_alloc[] = {{0, 30}, {2 * MiB, 30}, {GiB, 122}, {16 * GiB, 975}};
constexpr Cost blocking_free[] = {{0, 27}, {2 * MiB, 27}, {GiB, 314}, {16 * GiB, 6080}};
constexpr Cost create[] = {{0, 9.8}, {2 * MiB, 9.8}, {GiB, 50}};
// Includes cuMemSetAccess: 512 mapped chunks cost the same with one call as with 512.
constexpr Cost map[] = {{0, 25},        {16 * MiB, 25},  {32 * MiB, 23.1},
                        {64 * MiB, 25}, {128 * MiB, 29}, {GiB, 88}};
constexpr Cost unmap[] = {{0, 18}, {16 * MiB, 18}, {GiB, 40}};
constexpr Cost release[] = {{0, 9}, {GiB, 360}};  // small end: a 2 MiB cuMemFree less the unmap
constexpr Cost copy_within_device[] = {
    {0, 10}, {2 * MiB, 10}, {64 * MiB, 42}, {GiB, 511}, {4 * GiB, 2006}};
constexpr Cost copy_between_devices[] = {{0, 10}, {GiB, 2718}};  // 395 GB/s
constexpr Cost copy_pinned[] = {{0, 10}, {GiB, 19452}};          // 55.2 GB/s
constexpr Cost copy_pageable[] = {{0, 10}, {32 * MiB, 2722}};
// assumed: a large set writes as fast as kernels do, 4.2 TB/s
constexpr Cost set[] = {{0, 10}, {2 * MiB, 10}, {4 * GiB, 1023}};
constexpr Cost async_alloc[] = {{0, 0.7}};  // from memory that the pool already has
constexpr Cost async_free[] = {{0, 0.5}};
// assumed: the costs of create, map, unmap and release of one chunk
constexpr Cost grow_pool[] = {{0, 35}, {16 * MiB, 35}, {32 * MiB, 34}, {GiB, 138}};
constexpr Cost shrink_pool[] = {{0, 27}, {16 * MiB, 33}, {GiB, 400}};
constexpr Cost export_fd[] = {{0, 999}};
constexpr Cost import_fd[] = {{0, 56}};
constexpr Cost kernel_launch[] = {{0, 2.81}};
constexpr Cost event[] = {{0, 0.12}};
constexpr Cost capture_query[] = {{0, 0.012}};

constexpr Curve curve_of(Row row) {
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
    case Row::cuLaunchKernel:
    case Row::cuLaunchKernelEx:
    case Row::cuLaunchCooperativeKernel:
      return kernel_launch;
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

Curve curve_of(Activity activity) {
  switch (activity) {
    case Activity::CopyWithinDevice:
      return copy_within_device;
    case Activity::CopyBetweenDevices:
      return copy_between_devices;
    case Activity::CopyPinned:
      return copy_pinned;
    case Activity::CopyPageable:
      return copy_pageable;
    case Activity::Set:
      return set;
    case Activity::GrowPool:
      return grow_pool;
    case Activity::ShrinkPool:
      return shrink_pool;
  }
  return {};
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

constexpr auto curves = [] {
  std::array<Curve, row_count> made;
  for (std::size_t row = 0; row < row_count; ++row) made[row] = curve_of(Row(row));
  return made;
}();

std::atomic<std::int64_t> modelled_ns{0};

thread_local std::int64_t modelled_ns_here = 0;

void add(double microseconds) {
  const auto ns = static_cast<std::int64_t>(microseconds * 1000);
  modelled_ns_here += ns;
  modelled_ns.fetch_add(ns, std::memory_order_relaxed);
}

}  // namespace

void cost_of(Row row, Size bytes) {
  const Curve curve = curves[static_cast<std::size_t>(row)];
  if (curve.empty()) return;
  const double least = curve.front().microseconds;
  add(bytes == 0 ? least : value_at(curve, bytes) - least);
}

void cost_of(Activity activity, Size bytes) {
  add(value_at(curve_of(activity), bytes));
}

std::int64_t modelled_ns_of_this_thread() {
  return modelled_ns_here;
}

double modelled_microseconds() {
  return double(modelled_ns.load(std::memory_order_relaxed)) / 1000;
}

}  // namespace cuvmm::sim
