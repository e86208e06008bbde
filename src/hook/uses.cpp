// SPDX-License-Identifier: Apache-2.0
#include "hook/uses.hpp"

#include <cstring>

#include "engine/control.hpp"
#include "hook/packed_parameters.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::size_t word = sizeof(std::uint64_t);

void note_words(LastUses& uses, const void* bytes, std::size_t size) {
  for (std::size_t at = 0; at + word <= size; at += word) {
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(bytes) + at, word);
    uses.note(value);
  }
}

// Samples at random, so that kernels launched in a fixed rotation are all sampled.
bool is_noted() {
  [[gnu::tls_model("initial-exec")]] static constinit thread_local std::uint32_t chance = 1;
  chance = chance * 1664525 + 1013904223;
  constexpr std::uint32_t one_in = 4;
  return (chance >> 16) % one_in == 0;
}

}  // namespace

void note_parameters(Engine& engine, LastUses& uses, CUfunction function, void* const* parameters,
                     void* const* packed) {
  if (!is_noted()) return;
  if (packed != nullptr) {
    const PackedParameters all{packed};
    if (all.is_understood) note_words(uses, all.bytes, all.size);
    return;
  }
  if (parameters == nullptr || engine.control() == nullptr) return;
  constexpr int any_device = 0;  // parameters are the same on every device
  const auto facts = engine.control()->kernels().find(function, any_device);
  if (facts == nullptr) return;
  for (std::size_t i = 0; i < facts->parameters.size(); ++i) {
    if (parameters[i] == nullptr) return;  // the driver will refuse it
    note_words(uses, parameters[i], facts->parameters[i].size);
  }
}

void forget_functions(Engine& engine) {
  if (engine.control() != nullptr) engine.control()->kernels().forget_all();
}

}  // namespace cuvmm::hook
