// SPDX-License-Identifier: Apache-2.0
// The simulated driver's own interface (cuvmm/sim.h), except for the kernels.
#include <algorithm>
#include <cstring>
#include <set>

#include "cuvmm/sim.h"
#include "sim/card/shared_card.hpp"
#include "sim/cost_model.hpp"
#include "sim/faults.hpp"
#include "sim/leaks.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// Counts the program's chunks on this device, whether held by handle or by mapping.
std::uint64_t count_chunks(const Device& device) {
  std::set<const Chunk*> chunks;
  for (const auto& chunk : Process::get().chunks.all()) {
    if (chunk->device() == &device) chunks.insert(chunk.get());
  }
  for (const Mapping& mapping : Process::get().space().program_mappings()) {
    if (mapping.chunk->device() == &device) chunks.insert(mapping.chunk.get());
  }
  return chunks.size();
}

cuvmm_sim_counters counters_of(Device& device) {
  const AddressSpace::Totals totals = Process::get().space().totals(device.ordinal());
  const auto live = [&](AllocationKind kind) {
    return totals.allocations[static_cast<std::size_t>(kind)];
  };
  return {.physical_bytes = device.used(),
          .physical_peak_bytes = device.peak(),
          .chunks = count_chunks(device),
          .mapped_bytes = totals.mapped_bytes,
          .reserved_bytes = totals.reserved_bytes,
          .blocking_allocations = live(AllocationKind::Blocking),
          .async_allocations = live(AllocationKind::Async)};
}

cuvmm_sim_card card_of(const Device& device) {
  SharedCard& card = *device.card();
  const SharedCard::Use use = card.use_of(device.number());
  const auto& engines =
      card.books().members[card.place()].engines[static_cast<std::size_t>(device.number())];
  const EngineUse& compute = engines[static_cast<std::size_t>(CardEngine::Compute)];
  const EngineUse& copy = engines[static_cast<std::size_t>(CardEngine::Copy)];
  return {.held_bytes = use.held,
          .held_by_all = use.held_by_all,
          .processes = use.processes,
          .compute_turns = compute.turns,
          .compute_ns = compute.busy_ns,
          .copy_turns = copy.turns,
          .copy_ns = copy.busy_ns};
}

// Writes as many lines as fit, always null-terminated.
void write_lines(const std::vector<std::string>& lines, char* text, std::uint64_t size) {
  if (text == nullptr || size == 0) return;
  std::uint64_t left = size - 1;
  for (const std::string& line : lines) {
    const std::string whole = line + "\n";
    const std::uint64_t length = std::min<std::uint64_t>(whole.size(), left);
    std::memcpy(text, whole.data(), length);
    text += length;
    left -= length;
  }
  *text = '\0';
}

}  // namespace
}  // namespace cuvmm::sim

#define CUVMM_SIM_EXPORT extern "C" [[gnu::visibility("default")]]

CUVMM_SIM_EXPORT int cuvmm_sim_set_faults(const char* faults) {
  return cuvmm::sim::set_faults(faults == nullptr ? "" : faults) ? 0 : -1;
}

CUVMM_SIM_EXPORT int cuvmm_sim_read_counters(int device, cuvmm_sim_counters* counters) {
  cuvmm::sim::Device* found = cuvmm::sim::Process::get().device(device);
  if (found == nullptr || counters == nullptr) return -1;
  *counters = cuvmm::sim::counters_of(*found);
  return 0;
}

CUVMM_SIM_EXPORT int cuvmm_sim_read_card(int device, cuvmm_sim_card* card) {
  const cuvmm::sim::Device* found = cuvmm::sim::Process::get().device(device);
  if (found == nullptr || found->card() == nullptr || card == nullptr) return -1;
  *card = cuvmm::sim::card_of(*found);
  return 0;
}

CUVMM_SIM_EXPORT uint64_t cuvmm_sim_calls(const char* name) {
  return cuvmm::sim::calls_of(name == nullptr ? "" : name);
}

CUVMM_SIM_EXPORT double cuvmm_sim_modelled_microseconds(void) {
  return cuvmm::sim::modelled_microseconds();
}

CUVMM_SIM_EXPORT uint64_t cuvmm_sim_leaks(char* text, uint64_t size) {
  const auto lines = cuvmm::sim::leaks();
  cuvmm::sim::write_lines(lines, text, size);
  return lines.size();
}
