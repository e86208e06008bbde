// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sched/issuer.hpp"
#include "sched/order.hpp"
#include "sched/ranges.hpp"
#include "sched/schedule_events.hpp"

namespace cuvmm {

// Whether the scheduler took a call. If it did not, the caller makes the call itself, once
// everything that must come before it has been issued.
enum class Taken : std::uint8_t { No, Yes };

// Clients submit operations; one thread per device issues them by policy.
//
// Thread-safe, but must not be called from the issuing threads. While it does not accept calls, the
// callers make them themselves.
class Scheduler {
 public:
  Scheduler(DriverSide& side, const ScheduleSettings& settings);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  const ScheduleSettings& settings() const { return settings_; }
  Schedule policy() const { return policy_.load(std::memory_order_relaxed); }
  void set_policy(Schedule policy) { policy_.store(policy); }

  void accept() { accepts_.store(true); }
  // Takes no more calls. When it returns, everything taken has been issued.
  void stop_accepting();
  // For the end of the process: takes no more calls and keeps its threads out of the driver. Waits
  // at most `at_most` for the calls already taken.
  void park(Duration at_most);

  Client& create_client(std::string name, int priority, int weight);
  // When it returns, everything that the client submitted has been issued. Threads bound to it fall
  // back to the client for all threads, if any.
  void end_client(Client& client);
  std::vector<Client*> clients() const;  // that have not ended
  // nullptr if there is no such client, or it has ended.
  Client* client(ClientId id) const;

  // The client that this thread is bound to, else the one for all threads; nullptr if there is
  // none.
  Client* client_of_this_thread() const;
  void bind_this_thread(Client* client);
  void bind_all_threads(Client* client) { of_all_threads_.store(client); }

  // Takes the call, waiting while the client's lane is full. `call()` will run on the issuing
  // thread, in request.context.
  template <class Call>
  Taken submit(Client& client, const Request& request, Call&& call) {
    const ScheduleRange range{"Client:submit_kernel"};
    Lane* lane = lane_of(client, request.stream->device);
    Operation* operation = lane != nullptr ? take_place(*lane, request) : nullptr;
    if (operation == nullptr) return Taken::No;
    operation->action.put(std::forward<Call>(call));
    publish(*lane, *operation);
    return Taken::Yes;
  }

  // Waits until the policy chooses this call. The caller then makes it within the turn's lifetime.
  class Turn {
   public:
    Turn(Scheduler& scheduler, Client& client, Request request);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // False if the caller must keep the order itself.
    bool was_taken() const { return issuer_ != nullptr; }
    // Call once the driver has accepted the call.
    void count_bytes() const { client_.count_bytes(bytes_); }

   private:
    Scheduler& scheduler_;
    Client& client_;
    const Size bytes_;
    Issuer* issuer_ = nullptr;  // nullptr: not taken
    Batch batch_;
    bool is_marked_ = false;
  };

  // Each waits until the operations that must precede something else have been issued.
  void settle_stream(const StreamState& stream);  // its work
  void settle_before_work_on(const StreamState& stream);
  void settle_event(CUevent event, bool with_waits);
  void settle_context(CUcontext context);
  void settle_graphs();
  void settle_launches_of(CUgraphExec graph);
  void settle_all();
  bool settle_all(std::uint64_t until);  // false if they were not issued by then
  // Waits until issued operations have their marks, so that no mark of ours enters a stream later.
  void wait_for_marks();

  bool has_unissued(const StreamState& stream) const;
  bool has_unissued(CUevent event) const;

  Failures& failures() { return failures_; }

  // Notifications for Order.
  CUcontext context_of(CUevent event) const;
  void event_began(CUevent event, CUcontext context);
  void event_recorded_directly(CUevent event, CUcontext context);
  // Other processes record it or wait for it, so its operations are never queued.
  void event_is_shared(CUevent event);
  void event_ended(CUevent event);
  void stream_ended(const StreamState& stream);
  void context_ends(CUcontext context);  // before the driver is called
  void context_ended(CUcontext context);

 private:
  static void add_last_positions(const Client& client, std::vector<QueuePosition>& last);
  std::vector<QueuePosition> last_positions() const;  // of all lanes; requires the lock
  std::vector<QueuePosition> last_of_all_lanes() const;
  std::vector<QueuePosition> refuse_from_here();
  Lane* lane_of(Client& client, int device);
  Lane* make_lane(Client& client, int device);
  Issuer* issuer_of(int device) {
    return issuers_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  }
  Operation* take_place(Lane& lane, const Request& request);
  void publish(Lane& lane, Operation& operation) {
    const std::uint64_t number = operation.number;
    if (trace_is_on()) [[unlikely]]
      trace_queued(lane, operation);
    Lane::publish(operation);
    issuer_of(lane.device())->look_at(lane, number);
  }
  template <typename Question>
  auto ask(Question question) const {
    const Holding holding{lock_};
    return question(order_);
  }
  void wait_for(const QueuePosition& position);
  void wait_for(const std::vector<QueuePosition>& positions) {
    for (const QueuePosition& position : positions) wait_for(position);
  }
  void warn_of_long_wait(const QueuePosition& position);

  DriverSide& side_;
  const ScheduleSettings settings_;
  std::atomic<Schedule> policy_;
  std::atomic<bool> accepts_{true};
  std::atomic<Client*> of_all_threads_{nullptr};
  Failures failures_;
  std::array<std::atomic<Issuer*>, most_scheduled_devices> issuers_{};

  mutable Lock lock_{LockOrder::Schedule};  // guards what follows
  Order order_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Client>> ended_;  // and drained: their lanes may still be queried
  ClientId last_client_ = no_client;
  std::vector<std::unique_ptr<Issuer>> owned_issuers_;
  std::uint64_t last_order_ = 0;
};

}  // namespace cuvmm
