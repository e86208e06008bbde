// SPDX-License-Identifier: Apache-2.0
#include "observe/published.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "share/process.hpp"

namespace cuvmm::observe {
namespace {

std::string program_of(std::string_view command) {
  command = command.substr(0, command.find(' '));
  const std::size_t slash = command.rfind('/');
  if (slash != std::string_view::npos) command.remove_prefix(slash + 1);
  return command.empty() ? "?" : std::string{command};
}

std::string arguments_of(std::string_view command) {
  const std::size_t blank = command.find(' ');
  if (blank == std::string_view::npos) return "";
  command.remove_prefix(blank + 1);
  while (!command.empty() && command.back() == ' ') command.remove_suffix(1);
  return std::string{command};
}

std::string device_name(const share::DeviceFigures& figures) {
  const std::string uuid = print_device_uuid(figures.uuid);
  return uuid.empty() ? "device " + std::to_string(figures.ordinal) : uuid;
}

void add_regions(ClientSample& client, const share::Figures& now) {
  client.regions_left_out = now.regions_left_out;
  for (std::uint32_t i = 0; i < now.region_count; ++i) {
    const auto device =
        std::find_if(now.devices.begin(), now.devices.begin() + now.device_count,
                     [&](const auto& one) { return one.ordinal == now.regions[i].device; });
    if (device == now.devices.begin() + now.device_count) continue;
    client.regions.push_back({.device = device_name(*device), .figures = now.regions[i]});
  }
}

}  // namespace

void PublishedProcesses::ask() {
  std::erase_if(all_, [](Known& one) {
    if (!one.seen.has_ended()) return false;
    one.seen.remove_file();
    return true;
  });
  for (const std::string& path : share::find_figures().paths) {
    const bool is_known = std::any_of(all_.begin(), all_.end(), [&](const Known& one) {
      return one.seen.path() == path && !one.seen.has_ended();
    });
    if (is_known) continue;
    // Skips a process that has just ended or is of another version.
    if (auto seen = share::SeenFigures::open(path); seen.ok()) all_.push_back({std::move(*seen)});
  }
  for (Known& one : all_) one.seen.ask();
}

bool PublishedProcesses::look() {
  bool all_answered = true;
  for (Known& one : all_) {
    one.answers = one.seen.look();
    all_answered = all_answered && one.answers;
  }
  return all_answered;
}

void PublishedProcesses::add_to(Snapshot& snapshot, ShowsArguments arguments) const {
  for (const Known& one : all_) {
    const share::Publisher& who = one.seen.publisher();
    const share::Figures& now = one.seen.figures();
    if (now.question == 0) continue;  // it has not answered yet
    // PIDs of another namespace are meaningless here.
    const bool is_here = who.namespace_of_process == share::namespace_of_processes();
    ClientSample* client = is_here ? snapshot.client_of(who.process) : nullptr;
    if (client == nullptr) {
      client = &snapshot.clients.emplace_back();
      client->process = who.process;
      client->user = ::geteuid();
    }
    const std::string name = who.name.data();
    const bool is_taken =
        name.empty() || std::any_of(snapshot.clients.begin(), snapshot.clients.end(),
                                    [&](const auto& other) { return other.label == name; });
    if (client->label.empty() && !is_taken) client->label = name;
    client->program = program_of(who.command.data());
    if (arguments == ShowsArguments::Yes) client->arguments = arguments_of(who.command.data());
    client->mode = who.mode.data();
    client->version = who.library_version.data();
    client->answers = one.answers;
    if (now.is_paused != 0) client->condition = ClientCondition::Paused;
    if (now.is_counted == 0) continue;
    client->paused = now.is_paused != 0 ? now.paused : 0;
    client->is_off_devices = client->is_off_devices || now.is_off_devices != 0;
    client->pauses = now.pauses;
    client->resumes = now.resumes;
    for (std::uint32_t i = 0; i < now.device_count; ++i) {
      const share::DeviceFigures& figures = now.devices[i];
      const std::string device = device_name(figures);
      client->at(device).figures = figures;
      DeviceSample& place = snapshot.device(device);
      if (place.capacity != 0) continue;
      place.capacity = figures.memory;
      place.index = static_cast<int>(figures.ordinal);
    }
    add_regions(*client, now);
  }
  snapshot.label_clients();
}

}  // namespace cuvmm::observe
