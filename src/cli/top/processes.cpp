// SPDX-License-Identifier: Apache-2.0
#include "cli/top/processes.hpp"

#include <pwd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "base/printable.hpp"
#include "base/size.hpp"
#include "share/system_error.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t longest_history = 60;
constexpr Duration patience{100'000};
// A search reads the mappings of every process, which took 25 ms for 20,000 of them.
constexpr Duration between_searches{5'000'000};

void sleep_for(long nanoseconds) {
  const timespec moment{.tv_sec = 0, .tv_nsec = nanoseconds};
  ::nanosleep(&moment, nullptr);
}

std::string name_of_user(uid_t user) {
  const passwd* const entry = ::getpwuid(user);
  return entry != nullptr ? printable(entry->pw_name) : std::to_string(user);
}

std::optional<node::Container> container_of(const share::SeenFigures& seen) {
  if (!seen.is_numbered_here()) return {};
  std::ifstream cgroups{"/proc/" + std::to_string(seen.process()) + "/cgroup"};
  return node::container_of_cgroups(
      std::string{std::istreambuf_iterator<char>{cgroups}, std::istreambuf_iterator<char>{}});
}

}  // namespace

std::optional<double> MemoryNow::utilisation() const {
  if (physical == 0) return {};
  return static_cast<double>(physical - std::min(cached, physical)) / static_cast<double>(physical);
}

SeenProcess::SeenProcess(share::SeenFigures seen, std::optional<std::uint32_t> device)
    : seen_(std::move(seen)),
      device_(device),
      user_(name_of_user(seen_.user())),
      container_(container_of(seen_)) {}

bool SeenProcess::is_of_this_user() const {
  return seen_.user() == ::geteuid();
}

std::optional<MemoryNow> SeenProcess::memory() const {
  const share::Figures& now = figures();
  if (now.is_counted == 0) return {};
  MemoryNow sum;
  bool has_limit = now.device_count > 0;
  Size limits = 0;
  for (std::uint32_t i = 0; i < now.device_count; ++i) {
    const share::DeviceFigures& device = now.devices[i];
    if (device_ && device.ordinal != *device_) continue;
    sum.live += device.requested_live;
    sum.cached += device.cached;
    sum.physical += device.physical;
    sum.spilled += device.spilled;
    sum.moves += device.moves;
    sum.moved += device.moved;
    has_limit = has_limit && device.limit != unlimited;
    limits += has_limit ? device.limit : 0;
  }
  if (has_limit) sum.limit = limits;
  // What a partial resume has left on the host is not known by device.
  const bool is_all = !device_ || now.device_count == 1;
  if (is_all && now.is_paused == 0) sum.spilled += now.paused;
  return sum;
}

std::string SeenProcess::command() const {
  const std::string text = printable(who().command.data());
  return text.empty() ? "?" : text;
}

std::string SeenProcess::devices() const {
  std::string text;
  for (std::uint32_t i = 0; i < figures().device_count; ++i) {
    const auto ordinal = figures().devices[i].ordinal;
    if (device_ && ordinal != *device_) continue;
    text += (text.empty() ? "" : ",") + std::to_string(ordinal);
  }
  return text.empty() ? "-" : text;
}

std::uint64_t SeenProcess::silent_for_us() const {
  const std::uint64_t now = now_us();
  const std::uint64_t then = figures().time_us;
  return answers_ || then == 0 || then > now ? 0 : now - then;
}

void SeenProcess::note(bool answered) {
  answers_ = answered;
  const auto memory = this->memory();
  history_.push_back(memory && answered ? memory->utilisation() : std::nullopt);
  if (history_.size() > longest_history) history_.pop_front();
}

void Processes::find() {
  if (reach_ == TopReach::Everywhere && now_us() >= next_search_us_) {
    find_everywhere();
    next_search_us_ = now_us() + static_cast<std::uint64_t>(between_searches.count());
  }
  find_in_own_folders();
}

void Processes::add(Result<share::SeenFigures> seen, const std::string& path,
                    std::vector<std::string>& problems) {
  if (!seen.ok()) {
    // Otherwise it has just ended.
    if (::access(path.c_str(), F_OK) == 0) problems.push_back(path + ": " + seen.error().text());
    return;
  }
  if (!filter_.shows(seen->process())) return;
  SeenProcess process{std::move(*seen), filter_.device};
  if (filter_.shows(process.container())) all_.push_back(std::move(process));
}

// A process that is listed already, but by its number in another namespace, is listed anew.
void Processes::find_everywhere() {
  problems_everywhere_.clear();
  for (const share::FiguresMapping& mapping : share::find_figures_mappings()) {
    auto seen = share::SeenFigures::open(mapping);
    if (!seen.ok() && (seen.error().system_code == EPERM || seen.error().system_code == EACCES)) {
      problems_everywhere_ = {"other users' processes: reading their figures takes CAP_SYS_ADMIN"};
      return;
    }
    const auto is_same = [&](SeenProcess& one) {
      return seen.ok() && one.seen().file() == seen->file() && !one.seen().has_ended();
    };
    std::erase_if(all_,
                  [&](SeenProcess& one) { return is_same(one) && !one.seen().is_numbered_here(); });
    if (std::any_of(all_.begin(), all_.end(), is_same)) continue;
    add(std::move(seen), mapping.link, problems_everywhere_);
  }
}

void Processes::find_in_own_folders() {
  const share::FiguresFiles files = share::find_figures();
  problems_ = problems_everywhere_;
  problems_.insert(problems_.end(), files.problems.begin(), files.problems.end());
  for (const std::string& path : files.paths) {
    const bool is_known = std::any_of(all_.begin(), all_.end(), [&](SeenProcess& one) {
      return one.seen().path() == path && !one.seen().has_ended();
    });
    if (is_known) continue;
    auto seen = share::SeenFigures::open(path);
    const bool is_found_elsewhere =
        seen.ok() && std::any_of(all_.begin(), all_.end(), [&](const SeenProcess& one) {
          return one.seen().file() == seen->file();
        });
    if (!is_found_elsewhere) add(std::move(seen), path, problems_);
  }
}

void Processes::wait_for_answers() {
  const share::Deadline until = share::Deadline::after(patience);
  long pause_ns = 100'000;
  for (bool all_answered = false; !all_answered && !until.is_over();) {
    sleep_for(pause_ns);
    pause_ns = std::min(pause_ns * 2, 10'000'000l);
    all_answered = true;
    for (SeenProcess& one : all_) all_answered = one.seen().look() && all_answered;
  }
}

void Processes::sample() {
  find();
  for (SeenProcess& one : all_) one.seen().ask();
  if (!all_.empty()) wait_for_answers();
  std::vector<SeenProcess> alive;
  for (SeenProcess& one : all_) {
    one.note(one.seen().look());
    if (!one.answers() && one.seen().has_ended()) {
      one.seen().remove_file();
    } else if (filter_.shows(one.figures())) {
      alive.push_back(std::move(one));
    }
  }
  all_ = std::move(alive);
}

}  // namespace cuvmm::cli
