// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.hpp"

#include <algorithm>
#include <mutex>

#include "base/log.hpp"

namespace cuvmm {
namespace {

// Names the scheduler too, because a forked child has another one, without its parent's clients.
struct Binding {
  const Scheduler* scheduler;
  Client* client;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Binding binding{};

constexpr Duration longest_park{1'000'000};

}  // namespace

Scheduler::Scheduler(DriverSide& side, const ScheduleSettings& settings)
    : side_(side), settings_(settings), policy_(settings.policy) {}

Scheduler::~Scheduler() {
  stop_accepting();
  park(longest_park);
}

void Scheduler::add_last_positions(const Client& client, std::vector<QueuePosition>& last) {
  for (int device = 0; device < most_scheduled_devices; ++device) {
    if (Lane* lane = client.lane(device)) last.push_back({lane, lane->submitted()});
  }
}

std::vector<QueuePosition> Scheduler::last_positions() const {
  std::vector<QueuePosition> last;
  for (const auto& client : clients_) add_last_positions(*client, last);
  return last;
}

std::vector<QueuePosition> Scheduler::refuse_from_here() {
  const Holding holding{lock_};
  accepts_.store(false);
  return last_positions();
}

void Scheduler::stop_accepting() {
  wait_for(refuse_from_here());
}

void Scheduler::park(Duration at_most) {
  const std::uint64_t until = now_us() + static_cast<std::uint64_t>(at_most.count());
  const auto left = [&] {
    const std::uint64_t now = now_us();
    return Duration{now < until ? until - now : 0};
  };
  const std::vector<QueuePosition> last = refuse_from_here();
  for (auto& issuer : issuers_) {
    if (Issuer* running = issuer.load()) running->end_pacing();
  }
  for (const QueuePosition& position : last)
    position.lane->wait_until_issued(position.number, left());
  for (auto& issuer : issuers_) {
    if (Issuer* running = issuer.load()) running->stop(left());
  }
}

// Appends a number to a name that is taken, so that figures and traces distinguish the two.
Client& Scheduler::create_client(std::string name, int priority, int weight) {
  const Holding holding{lock_};
  const auto is_taken = [&] {
    return std::any_of(clients_.begin(), clients_.end(), [&](const auto& client) {
      return !client->has_ended() && client->name() == name;
    });
  };
  const std::size_t length = name.size();
  for (int number = 2; is_taken(); ++number) {
    name.resize(length);
    name += " " + std::to_string(number);
  }
  clients_.push_back(std::make_unique<Client>(std::move(name), priority, weight, ++last_client_));
  trace_client_began(*clients_.back());
  return *clients_.back();
}

void Scheduler::end_client(Client& client) {
  std::vector<QueuePosition> last;
  {
    const Holding holding{lock_};
    if (client.has_ended()) return;
    client.end();
    add_last_positions(client, last);
  }
  wait_for(last);
  for (const QueuePosition& position : last) position.lane->give_room_back();
  Client* expected = &client;
  of_all_threads_.compare_exchange_strong(expected, nullptr);
  trace_client_ended(client);
  const Holding holding{lock_};
  const auto place = std::find_if(clients_.begin(), clients_.end(),
                                  [&](const auto& known) { return known.get() == &client; });
  ended_.push_back(std::move(*place));
  clients_.erase(place);
}

std::vector<Client*> Scheduler::clients() const {
  std::vector<Client*> all;
  const Holding holding{lock_};
  for (const auto& client : clients_) all.push_back(client.get());
  return all;
}

Client* Scheduler::client(ClientId id) const {
  const Holding holding{lock_};
  for (const auto& client : clients_) {
    if (client->id() == id && !client->has_ended()) return client.get();
  }
  return nullptr;
}

Client* Scheduler::client_of_this_thread() const {
  const Binding& mine = binding;
  if (mine.scheduler == this && mine.client != nullptr && !mine.client->has_ended()) {
    return mine.client;
  }
  return of_all_threads_.load(std::memory_order_acquire);
}

void Scheduler::bind_this_thread(Client* client) {
  binding = {this, client};
}

Lane* Scheduler::lane_of(Client& client, int device) {
  if (device < 0 || device >= most_scheduled_devices) return nullptr;
  Lane* lane = client.lane(device);
  return lane != nullptr ? lane : make_lane(client, device);
}

Lane* Scheduler::make_lane(Client& client, int device) {
  const Holding holding{lock_};
  if (Lane* lane = client.lane(device)) return lane;
  auto& position = issuers_[static_cast<std::size_t>(device)];
  if (position.load() == nullptr) {
    auto issuer = std::make_unique<Issuer>(device, side_, failures_, settings_, policy_);
    const auto started = issuer->start();
    if (!started.ok()) {
      CUVMM_LOG_ONCE(Warning, "%s; calls are not scheduled", started.error().text().c_str());
      return nullptr;
    }
    position.store(issuer.get());
    owned_issuers_.push_back(std::move(issuer));
  }
  Lane& lane = client.add_lane(device, settings_.capacity);
  position.load()->add(lane);
  return &lane;
}

Operation* Scheduler::take_place(Lane& lane, const Request& request) {
  bool has_waited = false;
  while (true) {
    const std::uint64_t now = now_ns();
    {
      const Holding holding{lock_};
      if (!accepts_.load(std::memory_order_relaxed) || lane.client().has_ended() ||
          lane.is_abandoned()) {
        return nullptr;
      }
      if (Operation* operation = lane.take_place()) {
        operation->request = request;
        operation->order = ++last_order_;
        operation->submitted_at = now;
        order_.submitted(request, {&lane, operation->number}, operation->after);
        if (request.is_after_all) {
          operation->after = last_positions();
          std::erase_if(operation->after, [&](const QueuePosition& position) {
            return position.lane == &lane || position.is_issued();
          });
        }
        return operation;
      }
    }
    const ScheduleRange range{"Client:wait_scheduler"};
    if (!std::exchange(has_waited, true)) lane.client().count_wait_for_room();
    if (!lane.wait_for_room(settings_.watchdog)) warn_of_long_wait({&lane, lane.issued() + 1});
  }
}

void Scheduler::wait_for(const QueuePosition& position) {
  if (position.is_issued()) return;
  const ScheduleRange range{"Client:wait_scheduler"};
  while (!position.lane->wait_until_issued(position.number, settings_.watchdog)) {
    if (position.lane->is_abandoned()) return;
    warn_of_long_wait(position);
  }
}

void Scheduler::warn_of_long_wait(const QueuePosition& position) {
  const Lane& lane = *position.lane;
  std::uint64_t since = 0;
  const Issuer* issuer = issuer_of(lane.device());
  const char* call = issuer != nullptr ? issuer->call_in_progress(since) : nullptr;
  CUVMM_LOG(Warning,
            "scheduler: a thread has waited %.1f s for the lane of client '%s' on device %d, which "
            "has %zu operations to be issued%s%s",
            static_cast<double>(std::chrono::microseconds{settings_.watchdog}.count()) / 1e6,
            lane.client().name().c_str(), lane.device(), lane.waiting(),
            call != nullptr ? "; the issuing thread is in " : "", call != nullptr ? call : "");
}

Scheduler::Turn::Turn(Scheduler& scheduler, Client& client, Request request)
    : scheduler_(scheduler), client_(client), bytes_(request.bytes) {
  std::uint64_t queued_to = 0;
  request.issued_by = IssuedBy::Caller;
  request.queued_to = &queued_to;
  const int device = request.stream->device;
  Lane* lane = scheduler.lane_of(client, device);
  Operation* operation = lane != nullptr ? scheduler.take_place(*lane, request) : nullptr;
  if (operation == nullptr) return;
  const QueuePosition position{lane, operation->number};
  scheduler.publish(*lane, *operation);
  scheduler.wait_for(position);
  if (!position.is_issued()) return;
  issuer_ = scheduler.issuer_of(device);
  batch_ = {.lane = lane,
            .context = request.stream->context,
            .stream = request.stream->id,
            .handle = request.stream->handle,
            .operations = 1,
            .kind = request.kind,
            .queued_to = queued_to};
  is_marked_ = queued_to != 0 && scheduler.side_.mark_begin(batch_);
}

Scheduler::Turn::~Turn() {
  if (issuer_ == nullptr) return;
  is_marked_ = is_marked_ && scheduler_.side_.mark_end(batch_);
  issuer_->caller_is_done(batch_, is_marked_);
}

}  // namespace cuvmm
