// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/stack_table.hpp"

#include <sys/mman.h>

#include <new>

#include "trace/stacks/native_frames.hpp"
#include "trace/stacks/python_frames.hpp"

namespace cuvmm::stacks {
namespace {

std::uint64_t mixed(std::uint64_t value) {
  return (value * 0x9E3779B97F4A7C15) >> 32;
}

}  // namespace

StackTable* StackTable::create() {
  void* memory = ::mmap(nullptr, sizeof(StackTable), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) StackTable;
}

StackTable::Place& StackTable::slot_of(const Frame& frame) {
  std::size_t at = mixed(frame.code + frame.line) % places_.size();
  while (places_[at].number != 0 &&
         (places_[at].code != frame.code || places_[at].line != frame.line)) {
    at = (at + 1) % places_.size();
  }
  return places_[at];
}

StackTable::Stack& StackTable::slot_of(std::uint32_t caller, std::uint32_t place) {
  std::size_t at = mixed(std::uint64_t{caller} << 16 ^ place) % stacks_.size();
  while (stacks_[at].number != 0 && (stacks_[at].caller != caller || stacks_[at].place != place)) {
    at = (at + 1) % stacks_.size();
  }
  return stacks_[at];
}

std::uint32_t StackTable::known_place(const Frame& frame) {
  const Holding holding{lock_};
  return slot_of(frame).number;
}

std::uint32_t StackTable::add_place(const Frame& frame, const std::string& name,
                                    TraceFacts& fresh) {
  const Holding holding{lock_};
  Place& slot = slot_of(frame);
  if (slot.number == 0 && place_count_ < most_places) {
    slot = {frame.code, frame.line, ++place_count_};
    fresh.names.push_back({TraceSubject::Place, slot.number, name});
  }
  return slot.number;
}

std::uint32_t StackTable::stack_on(std::uint32_t caller, std::uint32_t place, TraceFacts& fresh) {
  Stack& slot = slot_of(caller, place);
  if (slot.number == 0 && stack_count_ < most_stacks) {
    slot = {caller, place, ++stack_count_};
    fresh.stacks.push_back({slot.number, caller, place});
  }
  return slot.number;
}

std::uint32_t StackTable::number_of(std::span<const Frame> frames, TraceFacts& fresh) {
  std::array<std::uint32_t, most_frames> places{};
  for (std::size_t i = 0; i < frames.size(); ++i) {
    places[i] = known_place(frames[i]);
    if (places[i] != 0) continue;
    // Without the lock: names come from Python and the loader.
    const std::string name =
        frames[i].is_python ? name_of_python(frames[i]) : name_of_native(frames[i]);
    places[i] = add_place(frames[i], name, fresh);
  }
  const Holding holding{lock_};
  std::uint32_t stack = 0;
  for (std::size_t i = frames.size(); i > 0; --i) {
    const std::uint32_t next = places[i - 1] != 0 ? stack_on(stack, places[i - 1], fresh) : 0;
    if (next == 0) break;
    stack = next;
  }
  return stack;
}

}  // namespace cuvmm::stacks
