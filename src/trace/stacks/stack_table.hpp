// SPDX-License-Identifier: Apache-2.0
// The stacks seen so far, each with a number. They form a tree: a stack is a frame and the stack of
// its caller, so common outer frames are stored once.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/lock.hpp"
#include "trace/header.hpp"
#include "trace/stacks/frame.hpp"

namespace cuvmm::stacks {

class StackTable {
 public:
  static constexpr std::uint32_t most_places = 8'192;
  static constexpr std::uint32_t most_stacks = 32'768;

  // Allocates directly from the system, so that unused pages cost nothing. nullptr if there is no
  // memory.
  static StackTable* create();

  // The number of the stack with these frames, innermost first; 0 if there are none. Adds names and
  // stacks that the trace does not know yet to `fresh`. If a table is full, returns the stack as
  // far as it is known, from the outermost frame on.
  std::uint32_t number_of(std::span<const Frame> frames, TraceFacts& fresh);

 private:
  // A slot is unused while its number is 0. Each table is at most half full.
  struct Place {
    std::uint64_t code;
    std::uint32_t line;
    std::uint32_t number;
  };
  struct Stack {
    std::uint32_t caller;
    std::uint32_t place;
    std::uint32_t number;
  };

  StackTable() = default;
  Place& slot_of(const Frame& frame);
  Stack& slot_of(std::uint32_t caller, std::uint32_t place);
  std::uint32_t known_place(const Frame& frame);
  std::uint32_t add_place(const Frame& frame, const std::string& name, TraceFacts& fresh);
  std::uint32_t stack_on(std::uint32_t caller, std::uint32_t place, TraceFacts& fresh);

  Lock lock_{LockOrder::Stacks};
  std::uint32_t place_count_ = 0;
  std::uint32_t stack_count_ = 0;
  std::array<Place, 2 * most_places> places_;
  std::array<Stack, 2 * most_stacks> stacks_;
};

}  // namespace cuvmm::stacks
