// SPDX-License-Identifier: Apache-2.0
#include "daemon/time_keeper.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "base/log_rarely.hpp"
#include "trace/futex.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr Microseconds beat_every = 100'000;

// Sealed against shrinking, so that reading the board never faults. Of mode 0600, so that another
// user who gets it for reading cannot reopen it for writing.
Fd make_board_file() {
  Fd file{::memfd_create("cuvmm-grants", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const bool is_made =
      file.is_open() && ::fchmod(file.number(), 0600) == 0 &&
      ::ftruncate(file.number(), sizeof(GrantBoard)) == 0 &&
      ::fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  return is_made ? std::move(file) : Fd{};
}

// Whether a signal or a debugger has stopped the process.
bool is_stopped_now(pid_t process) {
  if (process <= 0) return false;
  std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
  std::string line;
  std::getline(file, line);
  // The name may contain anything, parentheses included.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 2 >= line.size()) return false;
  return line[end + 2] == 'T' || line[end + 2] == 't';
}

}  // namespace

void TimeKeeper::Unmap::operator()(GrantBoard* board) const {
  ::munmap(board, sizeof *board);
}

void TimeKeeper::configure(const TimeSettings& settings, Microseconds now) {
  tell(policy_.configure(settings, now));
}

std::optional<int> TimeKeeper::came(ClientId client, pid_t process, const TimeTerms& terms,
                                    Microseconds now) {
  Fd file = make_board_file();
  void* const memory = file.is_open() ? ::mmap(nullptr, sizeof(GrantBoard), PROT_READ | PROT_WRITE,
                                               MAP_SHARED, file.number(), 0)
                                      : MAP_FAILED;
  if (memory == MAP_FAILED) {
    CUVMM_LOG_RARELY(Warning, "a client gets no board, so its device time is not shared: %s",
                     std::strerror(errno));
    return {};
  }
  Client& known = clients_[client];
  known.process = process;
  known.cap = terms.cap;
  known.descriptor = std::move(file);
  known.board.reset(::new (memory) GrantBoard);
  for (std::size_t i = 0; i < std::min(devices_.size(), GrantBoard::most_devices); ++i) {
    known.board->devices[i].device = devices_[i].uuid;
  }
  tell(policy_.came(client, terms, now));
  return known.descriptor.number();
}

void TimeKeeper::uses(ClientId client, PlaceId device, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end() || words_of(found->second, device) == nullptr) return;
  tell(policy_.uses(client, device, now));
}

void TimeKeeper::terms_changed(ClientId client, const TimeTerms& terms, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  found->second.cap = terms.cap;
  tell(policy_.terms_changed(client, terms, now));
}

void TimeKeeper::left(ClientId client, Microseconds now) {
  if (clients_.erase(client) == 0) return;
  for (auto& [id, other] : clients_) {
    const auto slot = other.foregrounds.find(client);
    if (slot == other.foregrounds.end()) continue;
    for (GrantWords& words : other.board->devices) words.yields_to.fetch_and(~(1U << slot->second));
    other.foregrounds.erase(slot);
  }
  tell(policy_.left(client, now));
}

void TimeKeeper::groups_changed(const std::map<ClientId, std::string>& groups, Microseconds now) {
  tell(policy_.groups_changed(groups, now));
}

void TimeKeeper::yields(ClientId client) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) found->second.yields = true;
}

// If more clients are above this one than it has slots, it heeds the rest only when the service
// takes its grant.
std::uint32_t TimeKeeper::heeded_by(ClientId id, Client& client, PlaceId device) {
  std::uint32_t heeded = 0;
  if (!client.yields) return heeded;
  for (const ClientId above : policy_.above(id, device)) {
    if (const auto slot = slot_for(id, client, above)) heeded |= 1U << *slot;
  }
  return heeded;
}

std::optional<std::uint32_t> TimeKeeper::slot_for(ClientId id, Client& client, ClientId above) {
  if (const auto known = client.foregrounds.find(above); known != client.foregrounds.end()) {
    return known->second;
  }
  std::uint32_t taken = 0;
  for (const auto& [other, slot] : client.foregrounds) taken |= 1U << slot;
  const auto free = static_cast<std::uint32_t>(std::countr_one(taken));
  const auto foreground = clients_.find(above);
  if (free >= GrantBoard::most_foregrounds || foreground == clients_.end()) return {};
  Fd& file = foreground->second.for_others;
  if (!file.is_open()) {
    const std::string path =
        "/proc/self/fd/" + std::to_string(foreground->second.descriptor.number());
    file = Fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!file.is_open()) return {};
  }
  client.foregrounds[above] = free;
  send_board_(id, free, file.number());
  return free;
}

void TimeKeeper::has_memory_turn(ClientId client, bool has, Microseconds now) {
  if (clients_.contains(client)) tell(policy_.has_memory_turn(client, has, now));
}

GrantWords* TimeKeeper::words_of(Client& client, PlaceId device) const {
  for (std::size_t i = 0; i < std::min(devices_.size(), GrantBoard::most_devices); ++i) {
    if (devices_[i].index + 1 == device) return &client.board->devices[i];
  }
  return nullptr;
}

void TimeKeeper::news(ClientId client, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  beat(now);
  if (found->second.is_stopped) {
    found->second.is_stopped = false;
    tell(policy_.is_stopped(client, false, now));
  }
  read_times_in_flight();
  read_board(client, found->second, now);
}

// Any decision may revoke any client's grant, so all boards count.
void TimeKeeper::read_times_in_flight() {
  for (auto& [id, client] : clients_) {
    std::uint64_t until_ns = 0;
    for (const observe::NodeDevice& device : devices_) {
      const GrantWords* const words = words_of(client, device.index + 1);
      if (words == nullptr) continue;
      until_ns = std::max(until_ns, words->in_flight_until_ns.load(std::memory_order_relaxed));
    }
    policy_.in_flight_until(id, until_ns / 1000);
  }
}

void TimeKeeper::read_board(ClientId id, Client& client, Microseconds now) {
  for (const observe::NodeDevice& device : devices_) {
    const PlaceId place = device.index + 1;
    GrantWords* const words = words_of(client, place);
    if (words == nullptr) continue;
    const bool wants = words->wants.load(std::memory_order_acquire) != 0;
    bool& wanted = client.wants[place];
    if (wants != wanted) {
      wanted = wants;
      tell(policy_.wants(id, place, wants, now));
    }
    const std::uint32_t word = words->grant.load(std::memory_order_relaxed);
    const bool is_drained =
        grant_in(word) == TimeGrant::None && words->drained.load(std::memory_order_acquire) == word;
    if (is_drained) tell(policy_.drained(id, place, now));
  }
}

void TimeKeeper::tell(const TimePolicy::Decisions& decisions) {
  for (const TimeDecision& decision : decisions) {
    const auto found = clients_.find(decision.client);
    if (found == clients_.end()) continue;
    GrantWords* const words = words_of(found->second, decision.device);
    if (words == nullptr) continue;
    words->window.store(static_cast<std::uint32_t>(decision.window), std::memory_order_relaxed);
    words->yields_to.store(
        decision.yields ? heeded_by(decision.client, found->second, decision.device) : 0,
        std::memory_order_relaxed);
    words->grant.store(grant_word(++last_number_, decision.grant), std::memory_order_release);
    wake_all_shared(words->grant);
    GrantBoard& board = *found->second.board;
    board.changes.fetch_add(1, std::memory_order_release);
    wake_all_shared(board.changes);
  }
  report_suspensions();
}

void TimeKeeper::report_suspensions() {
  for (const observe::NodeDevice& device : devices_) {
    const PlaceId place = device.index + 1;
    if (!policy_.is_suspended(place)) {
      suspended_.erase(place);
    } else if (suspended_.insert(place).second) {
      CUVMM_LOG(Warning, "device %u: work outlasted its quantum; its time is not shared for %.0f s",
                device.index, static_cast<double>(policy_.settings().suspended_for) / 1e6);
    }
  }
}

// The heartbeat tells waiting threads that the service is alive, and whether they wait for a cap.
void TimeKeeper::beat(Microseconds now) {
  beaten_at_ = now;
  for (auto& [id, client] : clients_) {
    client.board->is_over_cap.store(policy_.is_over_cap(id) ? 1 : 0, std::memory_order_relaxed);
    client.board->beat_ns.store(now * 1000, std::memory_order_relaxed);
  }
}

void TimeKeeper::look_for_stopped(Microseconds now) {
  std::vector<ClientId> silent = policy_.undrained();
  if (now >= holders_checked_at_ + beat_every) {
    holders_checked_at_ = now;
    const std::vector<ClientId> holders = policy_.holders_others_wait_for();
    silent.insert(silent.end(), holders.begin(), holders.end());
  }
  for (auto& [id, client] : clients_) {
    const bool is_silent = std::find(silent.begin(), silent.end(), id) != silent.end();
    if (!is_silent && !client.is_stopped) continue;
    client.is_stopped = is_stopped_now(client.process);
    tell(policy_.is_stopped(id, client.is_stopped, now));
  }
}

void TimeKeeper::time_passed(Microseconds now) {
  if (clients_.empty()) return;
  read_times_in_flight();
  if (now >= beaten_at_ + beat_every) {
    beat(now);
    for (auto& [id, client] : clients_) read_board(id, client, now);
  }
  look_for_stopped(now);
  tell(policy_.passed(now));
}

std::optional<Microseconds> TimeKeeper::next_wake() const {
  std::optional<Microseconds> next = policy_.next_wake();
  const bool somebody_looks = policy_.has_waiting() || !policy_.undrained().empty();
  const Microseconds looks_at = std::min(beaten_at_, holders_checked_at_) + beat_every;
  if (somebody_looks) next = std::min(next.value_or(~Microseconds{0}), looks_at);
  return next;
}

std::uint32_t TimeKeeper::cap_of(ClientId client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? 100 : found->second.cap;
}

bool TimeKeeper::competes(ClientId client) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const observe::NodeDevice& device) {
    return policy_.grant_of(client, device.index + 1) != TimeGrant::Open;
  });
}

}  // namespace cuvmm::daemon
