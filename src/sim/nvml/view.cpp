// SPDX-License-Identifier: Apache-2.0
#include "sim/nvml/view.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "cuvmm/sim.h"
#include "sim/card/file.hpp"

namespace cuvmm::sim {
namespace {

CardShape shape_by_settings() {
  return {.devices = settings().devices, .memory = round_down(settings().memory, 2 * MiB)};
}

bool is_shared() {
  return !settings().card.name.empty();
}

Result<CardFile> card_file() {
  return CardFile::open(settings().card.name, shape_by_settings());
}

// Without a shared card, only this process uses its devices.
Size used_by_this_process(int ordinal) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  const auto read = reinterpret_cast<decltype(&cuvmm_sim_read_counters)>(
      ::dlsym(driver, "cuvmm_sim_read_counters"));
  cuvmm_sim_counters counters{};
  const bool known = read != nullptr && read(ordinal, &counters) == 0;
  ::dlclose(driver);
  return known ? counters.physical_bytes : 0;
}

DeviceView view_of_own_device(int ordinal) {
  DeviceView view{.memory = shape_by_settings().memory, .used = used_by_this_process(ordinal)};
  if (view.used != 0) view.processes.push_back({static_cast<std::uint64_t>(getpid()), view.used});
  return view;
}

}  // namespace

int nvml_device_count() {
  if (!is_shared()) return settings().devices;
  const auto file = card_file();
  return file.ok() ? static_cast<int>(file->books().devices) : 0;
}

std::optional<DeviceView> view_of_device(int ordinal) {
  if (!is_shared()) return view_of_own_device(ordinal);
  auto file = card_file();
  if (!file.ok()) return {};
  const CardFile::Held held{*file};
  if (!held) return {};
  file->remove_dead({});
  const CardBooks& books = file->books();
  const std::uint64_t own_namespace = pid_namespace();
  DeviceView view{.memory = books.memory, .used = held_on(books, ordinal)};
  for (const CardMember& member : books.members) {
    const Size of_member = held_by(member, ordinal);
    if (of_member == 0 || member.process_namespace != own_namespace) continue;
    view.processes.push_back({member.process, of_member});
  }
  return view;
}

}  // namespace cuvmm::sim
