// SPDX-License-Identifier: Apache-2.0
#include "sim/process.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/made_once.hpp"
#include "base/no_forks.hpp"
#include "sim/card/shared_card.hpp"
#include "sim/context.hpp"
#include "sim/guard.hpp"
#include "sim/settings.hpp"
#include "sim/views.hpp"
#include "sim/visible_devices.hpp"

namespace cuvmm::sim {

namespace {

constinit MadeOnce<Process> the_process;

// At load, since a process may fork before it starts.
[[gnu::constructor]] void handle_forks() {
  pthread_atfork(nullptr, nullptr, &Process::after_fork_in_child);
}

std::optional<std::vector<int>> devices_to_show(int count) {
  const char* const wanted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (wanted == nullptr) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const std::string_view text = wanted;
  auto visible = visible_devices(wanted, count, settings().card.name);
  if (!visible) {
    CUVMM_LOG_ONCE(Warning, "CUDA_VISIBLE_DEVICES=%s names a device twice", wanted);
  } else if (visible->empty() && !text.empty() && text != "-1") {  // which ask for none
    CUVMM_LOG_ONCE(Warning, "CUDA_VISIBLE_DEVICES=%s shows none of the simulated devices, 0 to %d",
                   wanted, count - 1);
  }
  return visible;
}

}  // namespace

Process::Process() = default;

Process& Process::get() {
  return the_process.get([] { return Process{}; });
}

CUresult Process::join_card() {
  const SimOptions& options = settings();
  if (options.card.name.empty() || card_ != nullptr) return CUDA_SUCCESS;
  const CardShape shape{.devices = options.devices, .memory = round_down(options.memory, 2 * MiB)};
  auto joined = SharedCard::join(options.card.name, shape);
  if (!joined.ok()) return CUDA_ERROR_OPERATING_SYSTEM;
  card_ = std::move(*joined);
  if (card_->device_count() != shape.devices || card_->memory() != shape.memory) {
    CUVMM_LOG(Info, "card %s: %d devices of %llu bytes, as set by its first process",
              options.card.name.c_str(), card_->device_count(),
              static_cast<unsigned long long>(card_->memory()));
  }
  return CUDA_SUCCESS;
}

SharedCard* Process::card_before_start() {
  const NoForks meanwhile;
  const Holding holding{lock};
  return join_card() == CUDA_SUCCESS ? card_.get() : nullptr;
}

CUresult Process::start() {
  const NoForks meanwhile;  // a child finds the driver started, or can start it
  const Holding holding{lock};
  if (started()) return CUDA_SUCCESS;
  if (settings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  if (const CUresult refused = join_card(); refused != CUDA_SUCCESS) return refused;
  const int count = card_ != nullptr ? card_->device_count() : int{settings().devices};
  const auto visible = devices_to_show(count);
  if (!visible) return CUDA_ERROR_INVALID_DEVICE;
  if (visible->empty()) return CUDA_ERROR_NO_DEVICE;
  if (has_backing() && !Views::reserve(static_cast<int>(visible->size()))) {
    CUVMM_LOG(Error, "the addresses for device memory cannot be reserved");
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  space_.withhold_unusable_addresses();
  const Size memory = card_ != nullptr ? card_->memory() : round_down(settings().memory, 2 * MiB);
  for (const int number : *visible) {
    const auto ordinal = static_cast<int>(devices_.size());
    devices_.push_back(std::make_unique<Device>(ordinal, number, memory, card_.get()));
  }
  Guard::install();
  started_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

// The parent alone keeps its hold on the card, whatever the child does.
void Process::begin_as_forked_child() {
  if (card_ != nullptr) card_->close_in_child();
  if (started()) {
    forked_ = true;
    return;
  }
  // Not destroyed: it would unmap a mapping that the child lacks.
  [[maybe_unused]] SharedCard* const parents = card_.release();
}

void Process::after_fork_in_child() {
  if (Process* const process = the_process.get_if_made()) process->begin_as_forked_child();
}

Device* Process::device(int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return devices_[static_cast<std::size_t>(ordinal)].get();
}

Device* Process::device_numbered(int number) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [=](const auto& one) { return one->number() == number; });
  return found != devices_.end() ? found->get() : nullptr;
}

}  // namespace cuvmm::sim
