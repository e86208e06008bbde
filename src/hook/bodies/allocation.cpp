// SPDX-License-Identifier: Apache-2.0
// Memory that the program allocates and frees, in every form.
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::uint16_t native = trace_flag::native;
constexpr std::uint16_t host = trace_flag::native | trace_flag::on_host;
constexpr std::uint16_t ordered = trace_flag::stream_ordered;

// The allocation at this address, if cuvmm serves it.
template <Call call>
std::optional<AllocationFacts> facts_of(const Forward<call>& forward, std::uint64_t address) {
  const Serving* serving = forward.engine().serving();
  return serving != nullptr && address != 0 ? serving->memory.find(address) : std::nullopt;
}

// The request, as it is recorded with its answer.
struct Asked {
  Size size = 0;
  std::uint64_t stream = 0;
  std::uint16_t flags = native;
};

[[gnu::cold, gnu::noinline]] void count_refusal(Engine& engine) {
  if (Serving* serving = engine.serving()) serving->memory.count_native_refusal();
}

template <Call call>
CUresult record_allocation(const Forward<call>& forward, CUresult answer, const Asked& asked,
                           const void* given) {
  constexpr int other_memory = trace_flag::on_host | trace_flag::managed;
  const bool is_from_driver = (asked.flags & (native | other_memory)) == native;
  if (answer == CUDA_ERROR_OUT_OF_MEMORY && is_from_driver) count_refusal(forward.engine());
  if (!trace_is_on()) return answer;
  TraceRecord event{.event = TraceEvent::AllocateFailed,
                    .flags = asked.flags,
                    .size = asked.size,
                    .stream = asked.stream};
  if (answer == CUDA_SUCCESS && given != nullptr) {
    event.event = TraceEvent::Allocate;
    event.address = *static_cast<const std::uint64_t*>(given);
    const auto facts = facts_of(forward, event.address);
    event.other = facts ? facts->granted : asked.size;
  }
  record(forward, answer, event);
  return answer;
}

// The time is taken before the memory can be reused.
template <Call call, class Free>
CUresult record_free(const Forward<call>& forward, std::uint64_t address, const Asked& asked,
                     Free&& free) {
  if (!trace_is_on()) return free();
  const std::uint64_t began = now_ns();
  const auto facts = facts_of(forward, address);  // unknown once it is freed
  const CUresult answer = free();
  TraceRecord event{.time = began,
                    .event = TraceEvent::FreeFailed,
                    .flags = asked.flags,
                    .address = address,
                    .stream = asked.stream};
  if (answer == CUDA_SUCCESS) {
    event.event = TraceEvent::Free;
    event.size = facts ? facts->asked : 0;
    event.other = facts ? facts->granted : 0;
  }
  record(forward, answer, event);
  return answer;
}

// Memory served by the driver is counted under its address.
template <Call call>
void count_natively(const Forward<call>& forward, CUresult answer, const CUdeviceptr* given,
                    Size size) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || answer != CUDA_SUCCESS || given == nullptr) return;
  serving->memory.native().took({NativeMemory::Kind::Address, *given}, size);
}
// The same for a pool's memory. A captured allocation belongs to a graph, and is not counted here.
template <Call call>
void count_natively(const Forward<call>& forward, CUresult answer, const CUdeviceptr* given,
                    Size size, CUstream stream) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || !serving->memory.native().counts()) return;
  if (answer != CUDA_SUCCESS || given == nullptr) return;
  if (serving->memory.work().is_capturing(stream_name(forward, stream))) return;
  serving->memory.native().took_from_pool(*given, size);
}
template <Call call, class Free>
CUresult counted_free(const Forward<call>& forward, CUdeviceptr address, Free&& free) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || !serving->memory.native().counts()) return free();
  const NativeMemory::Name name{NativeMemory::Kind::Address, address};
  const auto counted = serving->memory.native().gives_back(name);
  const CUresult answer = free();
  if (answer != CUDA_SUCCESS && counted) {
    serving->memory.native().took(name, *counted);
  }
  return answer;
}

// Announced once, then served by cuvmm or by the driver; `flags` tell which.
template <Call call, class Serve, class... Arguments>
CUresult serve_or_forward(const Forward<call>& forward, std::uint16_t& flags, Serve&& serve,
                          Arguments... arguments) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (const Answer answer = served(forward, serve)) {
    flags &= static_cast<std::uint16_t>(~native);
    return *answer;
  }
  flags |= native;
  return forward.announced(arguments...);
}

}  // namespace

CUVMM_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size) {
  Asked asked{.size = size};
  // Deferred backing may fail in a later call. A queued call could not report that.
  Resizer* const resizer = forward.engine().scheduling().is_on() ? nullptr : resizer_of(forward);
  const auto serve = [&](Memory& memory) {
    return resizer != nullptr ? resizer->allocate(address, size) : memory.allocate(address, size);
  };
  const CUresult answer = serve_or_forward(forward, asked.flags, serve, address, size);
  if ((asked.flags & native) != 0) count_natively(forward, answer, address, size);
  return record_allocation(forward, answer, asked, address);
}

CUVMM_HOOK(cuMemAllocPitch_v2, CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
           unsigned element) {
  Asked asked{.size = width * height};
  const auto serve = [&](Memory& memory) {
    return memory.allocate_pitch(address, pitch, width, height, element);
  };
  const CUresult answer =
      serve_or_forward(forward, asked.flags, serve, address, pitch, width, height, element);
  if (answer == CUDA_SUCCESS && pitch != nullptr) asked.size = *pitch * height;
  if ((asked.flags & native) != 0) count_natively(forward, answer, address, asked.size);
  return record_allocation(forward, answer, asked, address);
}

CUVMM_HOOK(cuMemAllocManaged, CUdeviceptr* address, size_t size, unsigned flags) {
  const CUresult answer = forward(address, size, flags);
  count_natively(forward, answer, address, size);
  return record_allocation(forward, answer, {.size = size, .flags = native | trace_flag::managed},
                           address);
}

CUVMM_HOOK(cuMemAllocHost_v2, void** address, size_t size) {
  return record_allocation(forward, forward(address, size), {.size = size, .flags = host}, address);
}

CUVMM_HOOK(cuMemHostAlloc, void** address, size_t size, unsigned flags) {
  return record_allocation(forward, forward(address, size, flags), {.size = size, .flags = host},
                           address);
}

CUVMM_HOOK(cuMemAllocAsync, CUdeviceptr* address, size_t size, CUstream stream) {
  Asked asked{.size = size, .stream = stream_number(stream, forward.flavour()), .flags = ordered};
  const auto serve = [&](Memory& memory) {
    return memory.allocate_ordered(address, size, stream_name(forward, stream));
  };
  const CUresult answer = serve_or_forward(forward, asked.flags, serve, address, size, stream);
  if ((asked.flags & native) != 0) count_natively(forward, answer, address, size, stream);
  return record_allocation(forward, answer, asked, address);
}

CUVMM_HOOK(cuMemAllocFromPoolAsync, CUdeviceptr* address, size_t size, CUmemoryPool pool,
           CUstream stream) {
  Asked asked{.size = size, .stream = stream_number(stream, forward.flavour()), .flags = ordered};
  const auto serve = [&](Memory& memory) {
    return memory.allocate_ordered(address, size, pool, stream_name(forward, stream));
  };
  const CUresult answer =
      serve_or_forward(forward, asked.flags, serve, address, size, pool, stream);
  if ((asked.flags & native) != 0) count_natively(forward, answer, address, size, stream);
  return record_allocation(forward, answer, asked, address);
}

CUVMM_HOOK(cuMemFree_v2, CUdeviceptr address) {
  Asked asked{.flags = 0};  // unless the driver frees it
  Resizer* const resizer = resizer_of(forward);
  const auto ordinary = [&] {
    return serve_or_forward(
        forward, asked.flags, [&](Memory& memory) { return memory.free(address); }, address);
  };
  const auto free = [&] {
    return resizer != nullptr ? resizer->free(address, ordinary) : ordinary();
  };
  return record_free(forward, address, asked, [&] { return counted_free(forward, address, free); });
}

CUVMM_HOOK(cuMemFreeHost, void* address) {
  const Asked asked{.flags = host};
  return record_free(forward, reinterpret_cast<std::uint64_t>(address), asked,
                     [&] { return forward(address); });
}

CUVMM_HOOK(cuMemFreeAsync, CUdeviceptr address, CUstream stream) {
  Asked asked{.stream = stream_number(stream, forward.flavour()), .flags = ordered};
  Resizer* const resizer = resizer_of(forward);
  const auto serve = [&](Memory& memory) {
    return memory.free_ordered(address, stream_name(forward, stream));
  };
  const auto ordinary = [&] {
    return serve_or_forward(forward, asked.flags, serve, address, stream);
  };
  const auto free = [&] {
    return resizer != nullptr ? resizer->free_ordered(address, ordinary) : ordinary();
  };
  return record_free(forward, address, asked, [&] { return counted_free(forward, address, free); });
}

}  // namespace cuvmm::hook
