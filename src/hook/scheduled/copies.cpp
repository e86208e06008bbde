// SPDX-License-Identifier: Apache-2.0
// Copies and sets. Those whose completion the caller may rely on, and those of memory unknown to
// the driver, are made on the caller's thread.
#include <bit>

#include "hook/scheduled/dispatch_mode.hpp"
#include "hook/scheduled/memory_of_call.hpp"

namespace cuvmm::hook {
namespace {

// The largest copy from pageable memory that the driver accepts without waiting for the stream.
// Larger copies wait, here as natively.
constexpr Size most_staged = Size{64} << 10;
constexpr std::size_t few_staged_bytes = 64;

std::uint64_t kind_of(Call call, Size size) {
  return static_cast<std::uint64_t>(call) * 64 + std::bit_width(size) + 1;
}

// On the legacy stream, a copy or set that names another context's memory is also work of that
// context (LegacyJoin), whose lanes Order does not relate to this one.
bool is_also_work_of_its_owner(const MemoryOfCall& memory, const DispatchMode& mode) {
  return mode.stream->kind == StreamKind::Legacy && memory.owner != nullptr &&
         memory.owner != mode.stream->context;
}

[[gnu::noinline]] bool is_on_device(const MemoryOfCall& memory, const DispatchMode& mode) {
  return memory.kind <= CopyMemory::Spilled && memory.device == mode.stream->device &&
         !is_also_work_of_its_owner(memory, mode);
}

[[gnu::noinline]] bool reaches(const MemoryOfCall& memory, const DispatchMode& mode) {
  return memory.kind == CopyMemory::Pinned || is_on_device(memory, mode);
}

// Such a copy waits, even if its name says Async (measured). Spilled memory is host memory to the
// driver.
bool within_host(const MemoryOfCall& one, const MemoryOfCall& other) {
  return one.kind != CopyMemory::OnDevice && other.kind != CopyMemory::OnDevice;
}

template <Call call, class To, class From>
CUresult copy_ordered(const Forward<call>& forward, To to, From from, Size size, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(call, kind_of(call, size), size);
  const auto on_this_thread = [&] {
    return make_in_turn(mode, request, forward, to, from, size, stream);
  };
  Engine& engine = forward.engine();
  if (!mode.is_open_to_queue) return on_this_thread();
  const MemoryOfCall target = look_up(engine, to, size, Touch::Write);
  if (!reaches(target, mode)) return on_this_thread();
  const MemoryOfCall source = look_up(engine, from, size, Touch::Read);
  if (within_host(target, source)) return on_this_thread();
  if (reaches(source, mode)) return queue_as_it_is(mode, request, forward, to, from, size, stream);
  // Pageable memory is no device memory to the driver.
  if constexpr (call == Call::cuMemcpyDtoDAsync_v2) return on_this_thread();
  if (source.kind != CopyMemory::Pageable || size > most_staged) return on_this_thread();
  KeptBytes<few_staged_bytes> staged{size};
  if (!staged.ok()) return on_this_thread();
  if (!stage(staged.data(), from, size)) return on_this_thread();
  return queue(
      mode, request,
      [forward, to, size, stream, staged = std::move(staged)]() mutable {
        From again{};
        if constexpr (std::is_pointer_v<From>) {
          again = staged.data();
        } else {
          again = reinterpret_cast<CUdeviceptr>(staged.data());
        }
        return make_now(forward, to, again, size, stream);
      },
      forward, to, from, size, stream);
}

// The call may return only when the copy is done, so it is made on the caller's thread.
template <Call call, class... Arguments>
CUresult copy_waiting(const Forward<call>& forward, Size size, Arguments... arguments) {
  const DispatchMode mode = dispatch_mode(forward, nullptr);
  return make_in_turn(mode, mode.request(call, kind_of(call, size), size), forward, arguments...);
}

// The bytes from the first to the last; ~0, larger than any memory, on overflow.
Size span_of(Size pitch, Size width_in_bytes, Size height) {
  if (height == 0 || width_in_bytes == 0) return 0;
  Size span = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &span)) return ~Size{0};
  return __builtin_add_overflow(span, width_in_bytes, &span) ? ~Size{0} : span;
}

Size in_bytes(Size count, Size each) {
  Size bytes = 0;
  return __builtin_mul_overflow(count, each, &bytes) ? ~Size{0} : bytes;
}

// What a set writes, as far as the driver checks it at the call.
struct SetShape {
  Size span;
  bool is_valid;  // aligned, and the rows do not overlap
};

SetShape one_row(CUdeviceptr address, Size element, Size count) {
  return {.span = in_bytes(count, element), .is_valid = address % element == 0};
}

SetShape many_rows(CUdeviceptr address, Size pitch, Size element, Size width, Size height) {
  const Size row = in_bytes(width, element);
  const bool is_valid_pitch = height <= 1 || (pitch % element == 0 && pitch >= row);
  return {.span = span_of(pitch, row, height),
          .is_valid = address % element == 0 && is_valid_pitch};
}

template <Call call, class... Arguments>
CUresult set(const Forward<call>& forward, CUdeviceptr address, const SetShape& shape,
             CUstream stream, Arguments... arguments) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(call, kind_of(call, shape.span), shape.span);
  Engine& engine = forward.engine();
  const bool later = mode.is_open_to_queue && shape.is_valid &&
                     is_on_device(look_up(engine, address, shape.span, Touch::Write), mode);
  return later ? queue_as_it_is(mode, request, forward, arguments...)
               : make_in_turn(mode, request, forward, arguments...);
}

// One side of a 2D copy: everything between its first byte and its last.
MemoryOfCall look_up_side(Engine& engine, CUmemorytype type, CUdeviceptr device, const void* host,
                          Size x, Size y, Size pitch, const CUDA_MEMCPY2D& copy, Touch how) {
  const bool is_on_host = type == CU_MEMORYTYPE_HOST;
  const bool is_linear =
      is_on_host || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
  if (!is_linear || (pitch != 0 && pitch < x + copy.WidthInBytes)) return {};
  const CUdeviceptr start = is_on_host ? reinterpret_cast<CUdeviceptr>(host) : device;
  const Size row = pitch == 0 ? copy.WidthInBytes : pitch;
  return look_up(engine, start, span_of(row, x + copy.WidthInBytes, y + copy.Height), how);
}

bool can_be_queued(Engine& engine, const DispatchMode& mode, const CUDA_MEMCPY2D& copy) {
  const MemoryOfCall from =
      look_up_side(engine, copy.srcMemoryType, copy.srcDevice, copy.srcHost, copy.srcXInBytes,
                   copy.srcY, copy.srcPitch, copy, Touch::Read);
  const MemoryOfCall to =
      look_up_side(engine, copy.dstMemoryType, copy.dstDevice, copy.dstHost, copy.dstXInBytes,
                   copy.dstY, copy.dstPitch, copy, Touch::Write);
  return reaches(from, mode) && reaches(to, mode) && !within_host(from, to);
}

}  // namespace

CUVMM_SCHEDULE(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}
CUVMM_SCHEDULE(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, size_t size,
               CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}
CUVMM_SCHEDULE(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t size,
               CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}
CUVMM_SCHEDULE(cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}

CUVMM_SCHEDULE(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D* copy, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Size size = copy != nullptr ? in_bytes(copy->WidthInBytes, copy->Height) : 0;
  const Request request =
      mode.request(Call::cuMemcpy2DAsync_v2, kind_of(Call::cuMemcpy2DAsync_v2, size), size);
  Engine& engine = forward.engine();
  const bool later = mode.is_open_to_queue && copy != nullptr && can_be_queued(engine, mode, *copy);
  if (!later) return make_in_turn(mode, request, forward, copy, stream);
  return queue(
      mode, request,
      [forward, kept = *copy, stream] {
        const CUDA_MEMCPY2D* again = &kept;
        return make_now(forward, again, stream);
      },
      forward, copy, stream);
}

// Within the device, the call returns before the copy is done, so it can be queued (measured).
CUVMM_SCHEDULE(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t size) {
  const DispatchMode mode = dispatch_mode(forward, nullptr);
  const Request request =
      mode.request(Call::cuMemcpyDtoD_v2, kind_of(Call::cuMemcpyDtoD_v2, size), size);
  Engine& engine = forward.engine();
  const auto can_be_queued = [&] {
    const MemoryOfCall target = look_up(engine, to, size, Touch::Write);
    const MemoryOfCall source = look_up(engine, from, size, Touch::Read);
    return is_on_device(target, mode) && is_on_device(source, mode) && !within_host(target, source);
  };
  return mode.is_open_to_queue && can_be_queued()
             ? queue_as_it_is(mode, request, forward, to, from, size)
             : make_in_turn(mode, request, forward, to, from, size);
}

CUVMM_SCHEDULE(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy_waiting(forward, size, to, from, size);
}
CUVMM_SCHEDULE(cuMemcpyHtoD_v2, CUdeviceptr to, const void* from, size_t size) {
  return copy_waiting(forward, size, to, from, size);
}
CUVMM_SCHEDULE(cuMemcpyDtoH_v2, void* to, CUdeviceptr from, size_t size) {
  return copy_waiting(forward, size, to, from, size);
}
CUVMM_SCHEDULE(cuMemcpy2D_v2, const CUDA_MEMCPY2D* copy) {
  return copy_waiting(forward, copy != nullptr ? in_bytes(copy->WidthInBytes, copy->Height) : 0,
                      copy);
}
CUVMM_SCHEDULE(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D* copy) {
  return copy_waiting(forward, copy != nullptr ? in_bytes(copy->WidthInBytes, copy->Height) : 0,
                      copy);
}
CUVMM_SCHEDULE(cuMemcpy3D_v2, const CUDA_MEMCPY3D* copy) {
  return copy_waiting(forward, 0, copy);
}
CUVMM_SCHEDULE(cuMemcpyPeer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
               CUcontext from_context, size_t size) {
  return copy_waiting(forward, size, to, to_context, from, from_context, size);
}
CUVMM_SCHEDULE(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
               CUcontext from_context, size_t size, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  return make_in_turn(
      mode, mode.request(Call::cuMemcpyPeerAsync, kind_of(Call::cuMemcpyPeerAsync, size), size),
      forward, to, to_context, from, from_context, size, stream);
}
CUVMM_SCHEDULE(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D* copy, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  return make_in_turn(mode, mode.request(Call::cuMemcpy3DAsync_v2), forward, copy, stream);
}

#define CUVMM_SCHEDULE_SET(bits, type)                                                            \
  CUVMM_SCHEDULE(cuMemsetD##bits##_v2, CUdeviceptr address, type value, size_t count) {           \
    return set(forward, address, one_row(address, sizeof(type), count), nullptr, address, value,  \
               count);                                                                            \
  }                                                                                               \
  CUVMM_SCHEDULE(cuMemsetD##bits##Async, CUdeviceptr address, type value, size_t count,           \
                 CUstream stream) {                                                               \
    return set(forward, address, one_row(address, sizeof(type), count), stream, address, value,   \
               count, stream);                                                                    \
  }                                                                                               \
  CUVMM_SCHEDULE(cuMemsetD2D##bits##_v2, CUdeviceptr address, size_t pitch, type value,           \
                 size_t width, size_t height) {                                                   \
    return set(forward, address, many_rows(address, pitch, sizeof(type), width, height), nullptr, \
               address, pitch, value, width, height);                                             \
  }                                                                                               \
  CUVMM_SCHEDULE(cuMemsetD2D##bits##Async, CUdeviceptr address, size_t pitch, type value,         \
                 size_t width, size_t height, CUstream stream) {                                  \
    return set(forward, address, many_rows(address, pitch, sizeof(type), width, height), stream,  \
               address, pitch, value, width, height, stream);                                     \
  }
CUVMM_SCHEDULE_SET(8, unsigned char)
CUVMM_SCHEDULE_SET(16, unsigned short)
CUVMM_SCHEDULE_SET(32, unsigned)
#undef CUVMM_SCHEDULE_SET

}  // namespace cuvmm::hook
