// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/lock.hpp"

namespace cuvmm::sim {

class Queue;

// A position in a queue, reached when all work up to it is done. An empty point counts as reached.
struct Point {
  std::shared_ptr<Queue> queue;
  std::uint64_t number = 0;
};

using Work = std::function<void()>;

// Whether work may run on the submitting thread if nothing is ahead of it. Work that can wait for
// the program (a kernel, a host function) may not.
enum class Duration : std::uint8_t { Short, Long };

// The work of one stream, run in order by a thread of its own. The thread starts when there is work
// and ends after it has been idle for a while.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  static std::shared_ptr<Queue> create();

  // Adds work that runs after all earlier work of this queue and after every point in `after`.
  Point submit(Work work, std::vector<Point> after, Duration duration);

  // The position of the last submitted work.
  Point last();
  bool is_idle() const { return done_.load() == submitted_.load(); }

  // These let held-back (lazy) work run up to the point.
  static bool is_reached(const Point& point);
  static void wait_for(const Point& point);
  // Like is_reached(), but lets no work run.
  static bool has_reached(const Point& point) {
    return point.queue == nullptr || point.queue->done_.load() >= point.number;
  }

  // Declares that work submitted from now on comes after the point, and after everything that the
  // point itself comes after. Only recorded for follows(); submit() still needs its own points.
  void will_follow(const Point& point);
  // Whether work submitted next is known to come after the point.
  bool follows(const Point& point) const;

  // Lets work of this queue run up to this number, and the work in other queues that it waits for.
  void allow(std::uint64_t number);
  void allow_all() { allow(submitted_.load()); }
  // No more work will come: the thread need not wait for any.
  void close();
  // Whether work is held back (SimWhen::Lazy and SimWhen::Random).
  bool is_held() const { return allowed_.load() < submitted_.load(); }

 private:
  static std::uint64_t next_id();

  struct Task {
    Work work;
    std::vector<Point> after;
  };

  // A point with the queue's id instead of a pointer, since the queue may be gone when follows() is
  // called.
  struct Followed {
    std::uint64_t queue = 0;
    std::uint64_t number = 0;
    std::uint64_t since = 0;  // number of our first task that comes after it
  };

  Queue() = default;
  void remember(const Followed& followed);  // caller holds lock_
  // The caller holds lock_ for the next four.
  bool can_run() const;
  bool has_ended() const { return closed_ && waiting_.empty(); }
  void finish_running();
  void start_worker();
  void run_tasks();

  const std::uint64_t id_ = next_id();

  mutable Lock lock_{LockOrder::SimExecutor};  // guards the members below
  std::vector<Followed> followed_;
  std::deque<Task> waiting_;
  bool running_ = false;  // the task before waiting_.front() is running, on any thread
  bool worker_ = false;   // a thread is in run_tasks()
  bool closed_ = false;
  Condition changed_;  // signalled when tasks are added, allowed or finished
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> allowed_{0};
};

// For SimWhen::Random: called at every call of the program, it randomly lets held work run or not.
// A slow ticker does the same for threads that poll without making calls.
void run_random_queues();

}  // namespace cuvmm::sim
