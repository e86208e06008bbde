// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "capi/answer.hpp"
#include "capi/engine_of_process.hpp"
#include "capi/origin.hpp"
#include "capi/table.hpp"

namespace cuvmm::capi {
namespace {

Result<CUdeviceptr> reserve(int ordinal, Size most) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  DeviceMemory& device = *TRY(running.stores().device(ordinal));
  return running.resizables().reserve(running.driver(), device, most);
}

Result<void> resize_buffer(CUdeviceptr address, Size size, const Resizable::After& after) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  const std::shared_ptr<Resizable> buffer = TRY(running.resizables().find(address));
  const bool shrinks = size < buffer->size();
  TRY(buffer->resize(size, after));
  if (shrinks) return_free_memory();
  return {};
}

Result<void> release_buffer(CUdeviceptr address, const Resizable::After& after) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  TRY(running.resizables().release(address, after));
  return_free_memory();
  return {};
}

Result<cuvmm_resizable_info> describe_buffer(CUdeviceptr address) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  const std::shared_ptr<Resizable> buffer = TRY(running.resizables().find(address));
  cuvmm_resizable_info info{};
  info.size = buffer->size();
  info.most = buffer->most();
  info.physical_bytes = buffer->physical_bytes();
  return info;
}

Result<cuvmm_resize_info> describe_resizing() {
  Engine& running = *TRY(engine());
  cuvmm_resize_info info{};
  Resizer* const resizer = running.serving() != nullptr ? running.serving()->resizer() : nullptr;
  if (resizer == nullptr) return info;
  const ResizeCounters counters = resizer->counters();
  info.elided_copies = counters.elided;
  info.elided_bytes = counters.elided_bytes;
  info.run_copies = std::accumulate(counters.run.begin(), counters.run.end(), std::uint64_t{0});
  return info;
}

Resizable::After after(void* stream) {
  return static_cast<CUstream>(stream);
}

template <class T>
cuvmm_status answer(const Result<T>& done, T* out, cuvmm_error* error) {
  if (!done.ok()) return refuse(done.error(), error);
  *out = *done;
  return CUVMM_OK;
}

}  // namespace

cuvmm_status reserve_resizable(int32_t device, uint64_t most, uint64_t* address,
                               cuvmm_error* error) {
  if (address == nullptr) return refuse_missing_pointer("reserve a resizable buffer", error);
  const Result<CUdeviceptr> reserved = reserve(device, most);
  if (!reserved.ok()) return refuse(reserved.error(), error);
  *address = *reserved;
  return CUVMM_OK;
}

cuvmm_status resize(uint64_t address, uint64_t size, cuvmm_error* error) {
  return answer(resize_buffer(address, size, std::nullopt), error);
}

cuvmm_status resize_ordered(uint64_t address, uint64_t size, void* stream, cuvmm_error* error) {
  return answer(resize_buffer(address, size, after(stream)), error);
}

cuvmm_status get_resizable_info(uint64_t address, cuvmm_resizable_info* info, cuvmm_error* error) {
  if (info == nullptr) return refuse_missing_pointer("describe a resizable buffer", error);
  return answer(describe_buffer(address), info, error);
}

cuvmm_status release_resizable(uint64_t address, cuvmm_error* error) {
  return answer(release_buffer(address, std::nullopt), error);
}

cuvmm_status release_resizable_ordered(uint64_t address, void* stream, cuvmm_error* error) {
  return answer(release_buffer(address, after(stream)), error);
}

cuvmm_status get_resize_info(cuvmm_resize_info* info, cuvmm_error* error) {
  if (info == nullptr) return refuse_missing_pointer("describe resizing", error);
  return answer(describe_resizing(), info, error);
}

}  // namespace cuvmm::capi
