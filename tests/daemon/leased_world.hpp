// SPDX-License-Identifier: Apache-2.0
// A leased budget between a program that agrees to everything and a service whose answers a test
// scripts.
#pragma once

#include "lease/leases.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/service_world.hpp"
#include "support/test_folder.hpp"

namespace cuvmm::test {

using lease::LeaseSettings;

inline constexpr Lessor::Uuid a_device{1, 2, 3};
inline constexpr Size device_memory = 512 * MiB;
inline constexpr Size batch = 8 * MiB;  // 1/64 of the device's memory

// Agrees to everything, and counts the calls.
class WillingTenant final : public lease::Tenant {
 public:
  Size cached(const LeasedBudget&) override { return cache.load(); }
  void free_cache(LeasedBudget& budget, Size wanted) override {
    ++frees;
    const Size gone = std::min(wanted, cache.load());
    cache -= gone;
    { const Commitment freed{budget, gone}; }
    Result<Commitment> taken = budget.commit(takes_meanwhile.exchange(0));
    ASSERT_TRUE(taken.ok());
    taken.value().keep();
  }
  Size cold(const LeasedBudget&) override { return cold_memory.load(); }
  void move_out_cold(LeasedBudget& budget, Size wanted, Duration) override {
    ++moves;
    const Size gone = std::min(wanted, cold_memory.load());
    cold_memory -= gone;
    const Commitment freed{budget, gone};
  }
  bool is_idle() override { return idle.load(); }
  Result<void> pause(Duration within, const share::Fellows& fellows,
                     const std::function<void()>& has_released) override {
    ++pauses;
    const std::uint64_t until = now_us() + static_cast<std::uint64_t>(within.count());
    while (busy.load() && now_us() < until && fellows.still_working()) ::usleep(1000);
    TRY(hold(takes_while_called.exchange(0)));
    if (busy.load() || !fellows.may_move())
      return Error{.kind = ErrorKind::TimedOut, .doing = "pause"};
    paused = true;
    if (gives_half_first) {
      const Size half = held / 2;
      held -= half;
      { const Commitment freed{*held_by, half}; }
      has_released();
    }
    const Commitment freed{*held_by, held.exchange(0)};
    if (fails_when_paused) return Error{.kind = ErrorKind::DriverFailed, .doing = "pause"};
    return {};
  }
  Result<void> resume(Come) override {
    if (has_shut_down) {
      ++resumes;
      return Error{.kind = ErrorKind::NotSupported, .doing = "resume"};
    }
    if (cannot_resume) {
      ++resumes;
      return Error{.kind = ErrorKind::OutOfMemory, .doing = "resume"};
    }
    TRY(hold(comes_back - held));
    paused = false;
    ++resumes;
    return {};
  }
  void return_ahead() override {
    if (!hold(held_by->surplus()).ok()) ADD_FAILURE() << "more than the lease has";
    ++returns_ahead;
  }
  void leave_again() override {
    const Commitment freed{*held_by, held.exchange(0)};
    ++leaves_again;
  }
  bool is_paused() const override { return paused.load(); }
  bool is_paused_by_command() const override { return paused.load() && paused_by_command.load(); }
  bool has_held_calls() const override { return held_calls.load(); }
  bool is_off_devices() const override { return presence.load() != share::Presence::OnDevices; }
  share::ControlAnswer agree(const share::ControlRequest& request) override {
    share::ControlAnswer said;
    said.outcome = share::ControlOutcome::Done;
    if (request.what == share::ControlWhat::LeaveDevices && !paused.load()) {
      said.say("it is not paused");
      said.outcome = share::ControlOutcome::Refused;
    } else if (request.what == share::ControlWhat::LeaveDevices) {
      presence = share::Presence::Leaving;
    } else if (request.what == share::ControlWhat::HasLeft) {
      presence = share::Presence::OffDevices;
      left = request.left;
    } else if (request.what == share::ControlWhat::HasReturned) {
      presence = share::Presence::OnDevices;
    }
    said.presence = presence.load();
    said.left = left;
    return said;
  }
  void wait_outside(const std::function<void()>& wait) override {
    ++outside;
    wait();
  }

  std::atomic<Size> cache{0};
  std::atomic<Size> takes_meanwhile{0};     // of what it frees next
  std::atomic<Size> takes_while_called{0};  // to pause, by a call that was under way
  std::atomic<Size> held{0};
  std::atomic<Size> comes_back{0};
  std::atomic<Size> cold_memory{0};
  std::atomic<int> frees{0};
  std::atomic<int> moves{0};
  std::atomic<int> pauses{0};
  std::atomic<int> resumes{0};
  std::atomic<int> returns_ahead{0};
  std::atomic<int> leaves_again{0};
  std::atomic<int> outside{0};
  std::atomic<bool> idle{false};
  std::atomic<bool> busy{false};
  std::atomic<bool> paused{false};
  std::atomic<bool> paused_by_command{false};
  std::atomic<bool> held_calls{false};
  std::atomic<bool> gives_half_first{false};
  std::atomic<bool> fails_when_paused{false};
  std::atomic<bool> has_shut_down{false};
  std::atomic<bool> cannot_resume{false};
  std::atomic<share::Presence> presence{share::Presence::OnDevices};
  share::LeftMemory left{};  // for the thread that carries out demands
  LeasedBudget* held_by = nullptr;

 private:
  Result<void> hold(Size more) {
    Commitment right = TRY(held_by->commit(more));
    right.keep();
    held += more;
    return {};
  }
};

// A service whose every answer comes from the test.
class FakeService {
 public:
  FakeService() {
    static int count = 0;
    path_ = test_folder() / ("service-" + std::to_string(++count));
    listening_ = Fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    const auto* const bound = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::bind(listening_.number(), bound, sizeof address), 0);
    EXPECT_EQ(::listen(listening_.number(), 8), 0);
  }
  ~FakeService() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  void accept() {
    socket_ = Fd{::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC)};
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_.number(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  // Whether a client connects within half a second.
  bool is_called() const {
    pollfd caller{.fd = listening_.number(), .events = POLLIN, .revents = 0};
    return ::poll(&caller, 1, 500) > 0;
  }
  void hang_up() { socket_.close(); }
  // Returns the greeting and sends the terms of every place that the client named.
  node::Greeting greet(Size limit = unlimited) {
    const auto greeting = hear<node::Greeting>();
    held_.clear();
    for (int i = 0; i < greeting.places; ++i) held_.push_back(hear<node::HeldAlready>());
    say(node::Accepted{});
    for (const node::HeldAlready& one : held_) say(node::PlaceTerms{one.place, 0, limit});
    return greeting;
  }
  const std::vector<node::HeldAlready>& held() const { return held_; }

  void say(const node::NodeMessage& message) {
    const auto packet = node::encode(message);
    ::send(socket_.number(), packet.data(), packet.size(), MSG_NOSIGNAL);
  }
  // Returns the next message of this kind and skips others.
  template <class Kind>
  Kind hear() {
    for (;;) {
      std::array<std::byte, node::longest_message> packet{};
      const ssize_t got = ::recv(socket_.number(), packet.data(), packet.size(), 0);
      if (got <= 0) {
        ADD_FAILURE() << "the client has gone";
        return {};
      }
      const auto said = node::decode(std::span{packet}.first(static_cast<std::size_t>(got)));
      if (!said.ok()) continue;
      if (const auto* wanted = std::get_if<Kind>(&*said)) return *wanted;
    }
  }
  void grant_next() { say(node::LeaseGrant{hear<node::LeaseAsk>().request}); }
  // Grants every other request, for the given time.
  void serve_for(int milliseconds) {
    const std::uint64_t until = now_us() + static_cast<std::uint64_t>(milliseconds) * 1000;
    while (now_us() < until) {
      const auto ask = hear_ask_at_once();
      if (!ask) continue;
      if (ask->request % 2 == 0) {
        say(node::LeaseGrant{ask->request});
      } else {
        say(node::LeaseRefusal{.request = ask->request, .why = node::RefusalReason::NotAtOnce});
      }
    }
  }
  // Answers every request until `ended` is set.
  template <class Answer>
  void answer_until(const std::atomic<bool>& ended, Answer answer) {
    while (!ended.load()) {
      if (const auto ask = hear_ask_at_once()) say(answer(*ask));
    }
  }
  node::LeaseAsk refuse_next(node::RefusalReason why, Size free = 0) {
    const auto ask = hear<node::LeaseAsk>();
    say(node::LeaseRefusal{.request = ask.request, .why = why, .free = free});
    return ask;
  }

 private:
  // Returns a request if one comes within a millisecond.
  std::optional<node::LeaseAsk> hear_ask_at_once() {
    pollfd waited{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    if (::poll(&waited, 1, 1) <= 0) return {};
    std::array<std::byte, node::longest_message> packet{};
    const ssize_t got = ::recv(socket_.number(), packet.data(), packet.size(), 0);
    if (got <= 0) return {};
    const auto said = node::decode(std::span{packet}.first(static_cast<std::size_t>(got)));
    const auto* ask = said.ok() ? std::get_if<node::LeaseAsk>(&*said) : nullptr;
    return ask != nullptr ? std::optional{*ask} : std::nullopt;
  }

  std::string path_;
  Fd listening_;
  Fd socket_;
  std::vector<node::HeldAlready> held_;
};

// Lives until the process ends, and stays reachable, so that it does not count as a leak.
template <class T, class... Arguments>
T& immortal(Arguments&&... arguments) {
  static auto& all = *new std::vector<std::shared_ptr<void>>;
  auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
  all.push_back(made);
  return *made;
}

// As in a program, the threads of Leases run until the process ends; so everything they use must
// live as long.
struct LeasedWorld {
  explicit LeasedWorld(bool is_required = false, SizeLimit cache = SizeLimit::none(),
                       Duration patience = LeaseSettings{}.patience)
      : service(immortal<FakeService>()),
        tenant(immortal<WillingTenant>()),
        budget(immortal<LeasedBudget>()),
        leases(immortal<lease::Leases>(LeaseSettings{.sockets = {service.path()},
                                                     .is_required = is_required,
                                                     .name = "w",
                                                     .cache = cache,
                                                     .patience = patience},
                                       tenant)) {
    tenant.held_by = &budget;
  }
  void begin(Size limit = unlimited) {
    std::thread other{[&] { leases.begin(budget, a_device, device_memory); }};
    service.accept();
    service.greet(limit);
    other.join();
    ASSERT_TRUE(comes_true([&] { return leases.is_connected() && budget.limit() == limit; }));
  }
  void begin_holding(Size held) {
    begin();
    ASSERT_TRUE(commit(held, [&] { service.grant_next(); }));
    tenant.held = held;
  }
  // Commits on another thread while the service answers on this one.
  bool commit(Size size, const std::function<void()>& meanwhile) {
    bool done = false;
    std::thread other{[&] { done = commit(size); }};
    meanwhile();
    other.join();
    return done;
  }
  bool commit(Size size) {
    auto right = budget.commit(size);
    if (right.ok()) right->keep();
    return right.ok();
  }
  void give_back(Size size) { const Commitment gone{budget, size}; }

  FakeService& service;
  WillingTenant& tenant;
  LeasedBudget& budget;
  lease::Leases& leases;
};

inline bool wait_for_more(LeasedBudget& budget, Size size, std::uint64_t milliseconds,
                          std::uint64_t longest = 0) {
  const std::uint64_t now = now_ns();
  return budget.wait_for_more(size, now + milliseconds * 1'000'000,
                              now + std::max(milliseconds, longest) * 1'000'000);
}

}  // namespace cuvmm::test
