// SPDX-License-Identifier: Apache-2.0
#include "capi/answer.hpp"
#include "capi/engine_of_process.hpp"
#include "capi/table.hpp"

namespace cuvmm::capi {
namespace {

Result<cuvmm_engine_info> describe_engine() {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  cuvmm_engine_info info{};
  info.device_count = TRY(running.stores().device_count());
  info.kind = kind_of_this_engine;
  info.mode = static_cast<int32_t>(running.mode());
  info.version = version_number;
  info.driver_version = running.driver().version;
  return info;
}

Result<cuvmm_device_info> describe_device(int ordinal) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  const DeviceMemory& device = *TRY(running.stores().device(ordinal));
  const ChunkCounters chunks = device.chunk_counters();
  cuvmm_device_info info{};
  info.granule = device.granule();
  info.memory = device.memory();
  info.limit = device.limit();
  info.physical_in_use = chunks.physical_in_use;
  info.physical_cached = chunks.physical_free + chunks.physical_unreleased;
  return info;
}

static_assert(static_cast<int>(Mode::Vmm) == CUVMM_MODE_VMM &&
              static_cast<int>(Mode::Monitor) == CUVMM_MODE_MONITOR &&
              static_cast<int>(Mode::Off) == CUVMM_MODE_OFF);

}  // namespace

cuvmm_status get_engine_info(cuvmm_engine_info* info, cuvmm_error* error) {
  if (info == nullptr) return refuse_missing_pointer("describe the engine", error);
  const auto described = describe_engine();
  if (!described.ok()) return refuse(described.error(), error);
  *info = *described;
  return CUVMM_OK;
}

cuvmm_status get_device_info(int32_t device, cuvmm_device_info* info, cuvmm_error* error) {
  if (info == nullptr) return refuse_missing_pointer("describe a device", error);
  const auto described = describe_device(device);
  if (!described.ok()) return refuse(described.error(), error);
  *info = *described;
  return CUVMM_OK;
}

}  // namespace cuvmm::capi
