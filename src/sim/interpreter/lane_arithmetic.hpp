// SPDX-License-Identifier: Apache-2.0
// Apply a function of values to all lanes.
#pragma once

#include "sim/interpreter/program.hpp"
#include "sim/interpreter/warp.hpp"

namespace cuvmm::sim {

template <class Result, class Value, class Function>
void run_unary(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<Result>(instruction.d);
  const auto* a = warp.lanes_of<Value>(instruction.a);
  each_lane(lanes, [&](unsigned lane) { d[lane] = Function::of(a[lane]); });
}

template <class Result, class First, class Second, class Function>
void run_binary(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<Result>(instruction.d);
  const auto* a = warp.lanes_of<First>(instruction.a);
  const auto* b = warp.lanes_of<Second>(instruction.b);
  each_lane(lanes, [&](unsigned lane) { d[lane] = Function::of(a[lane], b[lane]); });
}

template <class Result, class First, class Second, class Third, class Function>
void run_ternary(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<Result>(instruction.d);
  const auto* a = warp.lanes_of<First>(instruction.a);
  const auto* b = warp.lanes_of<Second>(instruction.b);
  const auto* c = warp.lanes_of<Third>(instruction.c);
  each_lane(lanes, [&](unsigned lane) { d[lane] = Function::of(a[lane], b[lane], c[lane]); });
}

}  // namespace cuvmm::sim
