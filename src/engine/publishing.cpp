// SPDX-License-Identifier: Apache-2.0
#include "engine/publishing.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "alloc/out_of_memory.hpp"
#include "base/at_exit.hpp"
#include "base/log.hpp"
#include "base/start_thread.hpp"
#include "cuvmm/version.h"
#include "engine/control.hpp"
#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"
#include "share/figures.hpp"

namespace cuvmm {
namespace {

using share::DeviceFigures;
using share::Figures;
using share::PublishedFigures;

// Never destroyed: its thread may still be running when the process ends.
std::atomic<PublishedFigures*> published{nullptr};
std::atomic<bool> is_begun{false};

struct Work {
  Engine& engine;
  PublishedFigures& figures;
};

DeviceFigures figures_of(const Serving& serving, const Control* control,
                         const DeviceMemory& device) {
  const MemoryCounters counters = serving.memory.counters(device.ordinal());
  const ProgramChunks::Created created = serving.program_chunks.created_for(device.ordinal());
  const ChunkCounters& chunks = counters.chunks;
  DeviceFigures figures{
      .ordinal = static_cast<std::uint32_t>(device.ordinal()),
      .memory = device.memory(),
      .limit = device.limit(),
      .requested_live = counters.requested_live + created.bytes,
      .cached = chunks.physical_free + chunks.physical_unreleased + counters.mapped_free,
      .physical = counters.physical_held() + created.on_device,
      .spilled = device.store().spilled().physical_in_use,
      .moves = counters.moved.count,
      .moved = counters.moved.bytes,
      .uuid = device.uuid(),
      .refusals = refused_allocations(device.ordinal())};
  if (control != nullptr) {
    const Placement::Tally& tally = control->placement().tally(device.ordinal());
    figures.placed_in = tally.in.load();
    figures.placed_out = tally.out.load();
    figures.spilled_hot = tally.hot.load();
  }
  return figures;
}

share::RegionFigures figures_of(const RegionUse& use, int device) {
  share::RegionFigures figures{.device = static_cast<std::uint32_t>(device),
                               .blocks = static_cast<std::uint32_t>(use.blocks),
                               .held = use.held,
                               .used = use.used,
                               .cached = use.cached,
                               .spilled = use.spilled,
                               .reserved = use.reserved};
  std::strncpy(figures.what.data(), use.what, figures.what.size() - 1);
  return figures;
}

// Adds the regions that hold the most memory, and the number left out. Omits regions that hold
// nothing.
void add_regions(Figures& figures, const Memory& memory) {
  std::vector<share::RegionFigures> all;
  for (const DeviceMemory* device : memory.devices().all()) {
    for (const RegionUse& use : memory.holdings().regions(device->ordinal())) {
      if (use.held != 0) all.push_back(figures_of(use, device->ordinal()));
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.held > b.held; });
  const std::size_t shown = std::min(all.size(), Figures::most_regions);
  std::copy_n(all.begin(), shown, figures.regions.begin());
  figures.region_count = static_cast<std::uint32_t>(shown);
  figures.regions_left_out = static_cast<std::uint32_t>(all.size() - shown);
}

Figures figures_of(const Engine& engine) {
  Figures figures;
  const Serving* const serving = engine.serving();
  if (serving == nullptr) return figures;
  figures.is_counted = 1;
  const Control* const control = engine.control();
  if (control != nullptr) {
    figures.is_paused = control->is_paused() ? 1 : 0;
    figures.is_off_devices = control->presence() == share::Presence::OffDevices ? 1 : 0;
    figures.paused = control->paused_bytes();
    figures.pauses = control->pauses().figures();
    figures.resumes = control->resumes().figures();
  }
  for (const DeviceMemory* device : serving->memory.devices().all()) {
    if (figures.device_count == Figures::most_devices) break;
    figures.devices[figures.device_count++] = figures_of(*serving, control, *device);
  }
  add_regions(figures, serving->memory);
  return figures;
}

Result<void> answer_next(const Work& work) {
  const auto question = TRY(work.figures.wait_for_question(an_hour));
  if (!question) return {};
  return work.figures.answer(figures_of(work.engine), *question);
}

// Loops until no query can arrive any more. Other errors may be transient, such as a lack of
// descriptors.
Error answer_questions(const Work& work) {
  constexpr useconds_t shortest = 50'000;
  constexpr useconds_t longest = 5'000'000;
  useconds_t rest = shortest;
  for (;;) {
    const auto answered = answer_next(work);
    if (answered.ok()) {
      rest = shortest;
      continue;
    }
    if (answered.error().kind == ErrorKind::NotFound) return answered.error();
    CUVMM_LOG_ONCE(Info, "%s; it is tried again", answered.error().text().c_str());
    ::usleep(rest);
    rest = std::min(2 * rest, longest);
  }
}

void* run(void* given) {
  const std::unique_ptr<Work> work{static_cast<Work*>(given)};
  ::pthread_setname_np(::pthread_self(), "cuvmm-figures");
  const HookBypass bypass;
  const Error ended = answer_questions(*work);
  CUVMM_LOG(Info, "%s; `cuvmm top` no longer sees this process", ended.text().c_str());
  return nullptr;
}

void remove_figures() {
  if (const PublishedFigures* mine = published.exchange(nullptr)) mine->remove();
}

share::Publisher publisher_of(const Options& options) {
  share::Publisher publisher = share::Publisher::of_this_process();
  static_assert(sizeof CUVMM_VERSION_STRING <= sizeof publisher.library_version);
  std::memcpy(publisher.library_version.data(), CUVMM_VERSION_STRING, sizeof CUVMM_VERSION_STRING);
  const auto mode = choice_names<Mode>[static_cast<std::size_t>(options.mode)];
  std::memcpy(publisher.mode.data(), mode.data(), std::min(mode.size(), publisher.mode.size() - 1));
  std::memcpy(publisher.name.data(), options.name.data(),
              std::min(options.name.size(), publisher.name.size() - 1));
  return publisher;
}

}  // namespace

void ensure_published(Engine& engine) {
  if (engine.options().publish == Switch::Off) return;
  if (is_begun.load(std::memory_order_relaxed) || is_begun.exchange(true)) return;
  auto made = PublishedFigures::publish(publisher_of(engine.options()));
  if (!made.ok()) {
    CUVMM_LOG(Info, "%s; `cuvmm top` does not see this process", made.error().text().c_str());
    return;
  }
  auto* const figures = new PublishedFigures{std::move(*made)};
  published.store(figures);
  static constinit AtExit removes_figures{&remove_figures};
  removes_figures.ensure();
  auto* const work = new Work{engine, *figures};
  if (start_detached_thread(&run, work) == 0) return;
  delete work;
  remove_figures();
  CUVMM_LOG(
      Info,
      "cannot start the thread that publishes figures; `cuvmm top` does not see this process");
}

void forget_publishing() {
  published.store(nullptr);
  is_begun.store(false);
}

}  // namespace cuvmm
