// SPDX-License-Identifier: Apache-2.0
#include "view/memory_walk.hpp"

#include <algorithm>
#include <vector>

namespace cuvmm::view {
namespace {

// Clamps the span, so that a damaged or hostile size cannot overflow the address.
Span span_of(std::uint64_t address, Size size) {
  return {address, address + std::min(size, unlimited - address)};
}

}  // namespace

void MemoryWalk::add(const TraceRecord& record) {
  if (const std::uint32_t ended = context_ends_.ended_by(record)) end_context(ended, record.time);
  follow_program_chunks(record);
  if (device_ && device_of(record) != *device_) return add_from_elsewhere(record);
  switch (record.event) {
    case TraceEvent::Allocate:
      if (is_device_memory(record) && record.address != 0) begin(record);
      break;
    case TraceEvent::Free:
      if ((record.flags & trace_flag::captured) == 0) end(record.address, record.time);
      break;
    case TraceEvent::Create:
      create(record);
      break;
    case TraceEvent::Release:
      release(record);
      break;
    case TraceEvent::Spill:
      spill(record);
      break;
    case TraceEvent::Fetch:
      fetch(record);
      break;
    case TraceEvent::Map:
      sink_.mapped(span_of(record.address, record.size), record.detail == 1 ? record.other : 0,
                   record.time);
      break;
    case TraceEvent::Unmap:
    case TraceEvent::Unreserve:
      sink_.unmapped(span_of(record.address, record.size), record.time);
      break;
    case TraceEvent::Move:
      sink_.unmapped(span_of(record.other, record.size), record.time);
      sink_.mapped(span_of(record.address, record.size), 0, record.time);
      break;
    default:
      break;
  }
}

// The device of the memory, where the record may have only the thread's current device.
std::int16_t MemoryWalk::device_of(const TraceRecord& record) const {
  if (record.event != TraceEvent::Map) return record.device;
  return program_chunks_.device_of(record).value_or(record.device);
}

// Ends what ends whatever the thread's current device.
void MemoryWalk::add_from_elsewhere(const TraceRecord& record) {
  if ((record.flags & trace_flag::captured) != 0) return;
  if (record.event == TraceEvent::Free) end(record.address, record.time);
  if (record.event == TraceEvent::Unmap) {
    sink_.unmapped(span_of(record.address, record.size), record.time);
  }
}

void MemoryWalk::begin(const TraceRecord& record) {
  end(record.address, record.time);  // in case its free was lost
  const Size largest = unlimited - record.address;
  const LiveBlock block{.address = record.address,
                        .requested = std::min(record.size, largest),
                        .granted = std::min(std::max(record.size, record.other), largest),
                        .began = record.time,
                        .stream = record.stream,
                        .context = record.context,
                        .thread = record.thread,
                        .flags = record.flags,
                        .client = record.client,
                        .device = record.device};
  live_.add(block);
  sums_.requested += block.requested;
  sums_.granted += block.granted;
  if (block.is_native()) add_physical(block.granted);
  sink_.began(block);
  sink_.counted(sums_, record.time);
}

// A trace that began late contains frees of blocks whose allocation it does not know.
void MemoryWalk::end(std::uint64_t address, std::uint64_t time) {
  const auto block = live_.take(address);
  if (!block) return;
  sums_.requested -= block->requested;
  sums_.granted -= block->granted;
  if (block->is_native()) take_physical(block->granted);
  sink_.ended(*block, time);
  sink_.counted(sums_, time);
}

void MemoryWalk::end_context(std::uint32_t context, std::uint64_t time) {
  std::vector<std::uint64_t> gone;
  live_.for_each([&](const LiveBlock& block) {
    if (block.context == context && !block.is_stream_ordered()) gone.push_back(block.address);
  });
  for (const std::uint64_t address : gone) end(address, time);
}

// These calls need no context, so the thread's current device says nothing about the chunk.
void MemoryWalk::follow_program_chunks(const TraceRecord& record) {
  const Size before = program_chunks_.bytes();
  program_chunks_.add(record);
  const Size after = program_chunks_.bytes();
  if (after == before) return;
  sums_.physical += after - before;
  sink_.counted(sums_, record.time);
}

void MemoryWalk::create(const TraceRecord& record) {
  constexpr std::uint16_t others = trace_flag::on_host | trace_flag::native;
  if ((record.flags & others) != 0) return;
  const auto [chunk, is_new] = chunks_.try_emplace(record.other, record.size);
  if (!is_new) take_physical(std::exchange(chunk->second, record.size));
  add_physical(record.size);
  sink_.counted(sums_, record.time);
}

void MemoryWalk::release(const TraceRecord& record) {
  if ((record.flags & trace_flag::native) != 0) return;
  const auto chunk = chunks_.find(record.other);
  if (chunk == chunks_.end()) return;
  take_physical(chunk->second);
  chunks_.erase(chunk);
  sink_.counted(sums_, record.time);
}

// For all devices together, a peer's chunk that holds spilled memory is spilled memory and not
// physical memory too. Of the peer alone, it is physical memory.
void MemoryWalk::spill(const TraceRecord& record) {
  sums_.spilled += record.size;
  const auto chunk = chunks_.find(record.other);
  if (!device_ && chunk != chunks_.end()) take_physical(std::exchange(chunk->second, 0));
  sink_.counted(sums_, record.time);
}

void MemoryWalk::fetch(const TraceRecord& record) {
  sums_.spilled -= std::min(record.size, sums_.spilled);
  const auto chunk = chunks_.find(record.other);
  if (!device_ && chunk != chunks_.end()) {
    take_physical(std::exchange(chunk->second, record.size));
    add_physical(record.size);
  }
  sink_.counted(sums_, record.time);
}

// Totals of hostile sizes may have wrapped around.
void MemoryWalk::take_physical(Size bytes) {
  sums_.physical -= std::min(bytes, sums_.physical);
}

}  // namespace cuvmm::view
