// SPDX-License-Identifier: Apache-2.0
// The program's queries about memory. For memory served by cuvmm, the answers match what the
// program requested; the driver answers everything else.
#include <algorithm>
#include <cstring>
#include <span>

#include "hook/bring_in.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

std::optional<AllocationFacts> found(Engine& engine, CUdeviceptr address) {
  Serving* serving = engine.serving();
  return serving != nullptr ? serving->memory.find(address) : std::nullopt;
}

// Queries the driver while the memory is present: not during a pause, and with pending work
// settled.
template <Call call, class Ask>
CUresult ask_when_there(const Forward<call>& forward, Effect effect, Ask&& ask) {
  const CallBarrier::Pass pass{forward.engine().calls(), call};
  const CUresult refused = forward.announce_as(effect);
  return refused != CUDA_SUCCESS ? refused : ask();
}

// Queries the driver about the program's own mappings, which are absent during a pause.
// `correct(const ProgramChunks&)` then adjusts the answer to describe the memory that the program
// asked for.
template <Call call, class Correct, class... Arguments>
CUresult ask_about_native(const Forward<call>& forward, CUdeviceptr address, const Correct& correct,
                          Arguments... arguments) {
  const Serving* const serving = forward.engine().serving();
  if (serving == nullptr || !serving->program_chunks.contains(address)) {
    return forward(arguments...);
  }
  return ask_when_there(forward, info(call).effect, [&] {
    const CUresult answer = forward.announced(arguments...);
    if (answer == CUDA_SUCCESS) correct(serving->program_chunks);
    return answer;
  });
}

// The answer that the driver gives for an unknown address. The driver knows cuvmm's mapping at
// `address`, so it is asked about another address, which it reports back as the host pointer.
template <class Ask>
CUresult answer_as_unknown(unsigned count, const CUpointer_attribute* attributes, void** data,
                           CUdeviceptr address, Ask&& ask) {
  static const char unknown = 0;
  const CUdeviceptr asked = reinterpret_cast<CUdeviceptr>(&unknown);
  const CUresult answer = ask(asked);
  for (unsigned i = 0; answer == CUDA_SUCCESS && i < count; ++i) {
    if (attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER) continue;
    if (std::memcmp(data[i], &asked, sizeof asked) == 0) {
      std::memcpy(data[i], &address, sizeof address);
    }
  }
  return answer;
}

// Whoever holds the tokens can let another device use the memory unseen, so the memory is pinned,
// and its backing must not be exchanged before it is. From now on, copies and sets of it return
// when they are done, as those of the driver's own memory do.
template <Call call, class Ask>
CUresult with_tokens(const Forward<call>& forward, CUdeviceptr address, Ask&& ask) {
  const CallBarrier::Pass there{forward.engine().calls(), call};
  const CUresult refused = forward.announce_as(Effect::Exposes);
  if (refused != CUDA_SUCCESS) return refused;
  const Gate::Pass unmoved{forward.engine().gate()};
  const CUresult answer = ask();
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS) {
    serving->memory.held().pin(address, pin::peer_tokens);
    serving->memory.held().set_sync_memops(address, true);
    serving->program_chunks.pin(address, 1, pin::peer_tokens);
  }
  return answer;
}

struct Range {
  CUdeviceptr address;
  size_t size;
};

// Pins cuvmm's blocks in the range. It may begin and end between blocks, since a program that wants
// whole pages widens it.
void pin_all(Memory& memory, const Range& range, std::uint8_t why) {
  if (!Engine::has_reserved(range.address, range.size)) return;
  constexpr Size step = 512;  // blocks begin at its multiples
  CUdeviceptr at = range.address;
  while (at - range.address < range.size) {
    const auto held = memory.find(at);
    if (held) memory.held().pin(at, why);
    at = held ? held->address + held->granted : round_down(at, step) + step;
  }
}

// For calls that let others use the memory by its physical location. Brings in the program's
// spilled chunks first. The backing must not be exchanged between the call and the pin, hence the
// gate.
template <Call call, class Ask>
CUresult hand_out(const Forward<call>& forward, const Range& range, std::uint8_t why, Ask&& ask) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const auto spilled = [&](const ProgramChunks& chunks) {
    return chunks.far(range.address, range.size);
  };
  if (const CUresult refused = bring_in(forward, spilled); refused != CUDA_SUCCESS) return refused;
  const Gate::Pass pass{forward.engine().gate()};
  const CUresult answer = ask();
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS) {
    pin_all(serving->memory, range, why);
    serving->program_chunks.pin(range.address, range.size, why);
  }
  return answer;
}

}  // namespace

CUVMM_HOOK(cuMemGetInfo_v2, size_t* free, size_t* total) {
  const CUresult answer = forward(free, total);
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || answer != CUDA_SUCCESS || free == nullptr || total == nullptr) {
    return answer;
  }
  const MemoryInfo told = serving->memory.info({.free = *free, .total = *total});
  *free = told.free;
  *total = told.total;
  return answer;
}

// The limit is the program's whole device, so a program that sizes itself by this value stays
// within it.
CUVMM_HOOK(cuDeviceTotalMem_v2, size_t* bytes, CUdevice device) {
  const CUresult answer = forward(bytes, device);
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || answer != CUDA_SUCCESS || bytes == nullptr) return answer;
  const DeviceMemory* const memory = serving->memory.devices().serve(device);
  if (memory != nullptr) *bytes = std::min<size_t>(*bytes, memory->limit());
  return answer;
}

CUVMM_HOOK(cuMemGetAddressRange_v2, CUdeviceptr* start, size_t* size, CUdeviceptr address) {
  const CallBarrier::Pass question{forward.engine().questions()};
  const auto held = found(forward.engine(), address);
  if (!held) {
    // The driver does not report where memory on the host begins.
    const auto correct = [&](const ProgramChunks& chunks) {
      const auto begins = chunks.begin_of_far(address);
      if (begins && start != nullptr) *start = *begins;
    };
    return ask_about_native(forward, address, correct, start, size, address);
  }
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (current_context(forward.engine().driver()) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Memory& memory = forward.engine().serving()->memory;
  if (const CUresult lost = memory.work().error_of_lost_context(); lost != CUDA_SUCCESS)
    return lost;
  if (start == nullptr && size == nullptr) return CUDA_SUCCESS;
  // The driver does not find another device's memory without access to it (measured).
  if (is_past_requested_size(*held, address) || !memory.contexts().may_use(*held)) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (start != nullptr) *start = held->address;
  if (size != nullptr) *size = held->asked;
  return CUDA_SUCCESS;
}

CUVMM_HOOK(cuPointerGetAttribute, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const CallBarrier::Pass question{forward.engine().questions()};
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || data == nullptr) return forward(data, attribute, address);
  const auto held = serving->memory.find(address);
  if (held && is_past_requested_size(*held, address)) {
    const CUresult refused = forward.announce();
    return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
    return with_tokens(forward, address,
                       [&] { return forward.announced(data, attribute, address); });
  }
  if (!held) {
    const auto correct = [&](const ProgramChunks& chunks) {
      const auto asked = pointer_answer(chunks, address, attribute);
      if (asked) asked->write(data);
    };
    return ask_about_native(forward, address, correct, data, attribute, address);
  }
  const auto ours = pointer_answer(serving->memory, *held, address, attribute);
  if (!ours) {
    return ask_when_there(forward, Effect::Reads,
                          [&] { return forward.announced(data, attribute, address); });
  }
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  ours->write(data);  // 0 if it is refused (measured)
  return ours->answer;
}

CUVMM_HOOK(cuPointerGetAttributes, unsigned count, CUpointer_attribute* attributes, void** data,
           CUdeviceptr address) {
  const CallBarrier::Pass question{forward.engine().questions()};
  const auto held = found(forward.engine(), address);
  if (attributes == nullptr) return forward(count, attributes, data, address);
  const std::span wanted{attributes, count};
  const bool tokens =
      std::find(wanted.begin(), wanted.end(), CU_POINTER_ATTRIBUTE_P2P_TOKENS) != wanted.end();
  if (!held && tokens) {
    return with_tokens(forward, address,
                       [&] { return forward.announced(count, attributes, data, address); });
  }
  if (!held) {
    const auto correct = [&](const ProgramChunks& chunks) {
      for (unsigned i = 0; i < count; ++i) {
        const auto asked = pointer_answer(chunks, address, attributes[i]);
        if (asked) asked->write(data[i]);
      }
    };
    return ask_about_native(forward, address, correct, count, attributes, data, address);
  }
  if (is_past_requested_size(*held, address)) {
    return answer_as_unknown(count, attributes, data, address, [&](CUdeviceptr instead) {
      return forward(count, attributes, data, instead);
    });
  }
  const auto ours = [&](CUpointer_attribute attribute) {
    return pointer_answer(forward.engine().serving()->memory, *held, address, attribute);
  };
  const bool are_all_ours = std::all_of(
      wanted.begin(), wanted.end(), [&](auto attribute) { return ours(attribute).has_value(); });
  const auto ask = [&] { return forward.announced(count, attributes, data, address); };
  const CUresult answer = tokens         ? with_tokens(forward, address, ask)
                          : are_all_ours ? forward(count, attributes, data, address)
                                         : ask_when_there(forward, Effect::Reads, ask);
  if (answer != CUDA_SUCCESS) return answer;
  for (unsigned i = 0; i < count; ++i) {
    if (const auto told = ours(attributes[i])) told->write(data[i]);
  }
  return answer;
}

// The driver refuses this attribute on mapped memory, so cuvmm stores it: copies and sets of such a
// block wait (sync_memops.hpp).
CUVMM_HOOK(cuPointerSetAttribute, const void* value, CUpointer_attribute attribute,
           CUdeviceptr address) {
  const bool is_kept = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  const auto held = is_kept ? found(forward.engine(), address) : std::nullopt;
  if (!held) return forward(value, attribute, address);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (is_past_requested_size(*held, address)) return CUDA_ERROR_INVALID_VALUE;
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  forward.engine().serving()->memory.held().set_sync_memops(address, wanted != 0);
  return CUDA_SUCCESS;
}

// The descriptor's holder may access the memory by its physical address at any time.
CUVMM_HOOK(cuMemGetHandleForAddressRange, void* handle, CUdeviceptr address, size_t size,
           CUmemRangeHandleType type, unsigned long long flags) {
  return hand_out(forward, {address, size}, pin::dma_buf,
                  [&] { return forward.announced(handle, address, size, type, flags); });
}

// The multicast object keeps a reference to the backing, and other devices reach the backing
// through it.
CUVMM_HOOK(cuMulticastBindAddr, CUmemGenericAllocationHandle object, size_t offset,
           CUdeviceptr address, size_t size, unsigned long long flags) {
  const Serving* const serving = forward.engine().serving();
  const auto of_driver = serving != nullptr ? serving->program_chunks.handle_of(object) : object;
  return hand_out(forward, {address, size}, pin::multicast,
                  [&] { return forward.announced(of_driver, offset, address, size, flags); });
}

}  // namespace cuvmm::hook
