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

// A place in a queue: reached when all work up to it is done. Empty: reached.
struct Point {
  std::shared_ptr<Queue> queue;
  std::uint64_t number = 0;
};

using Work = std::function<void()>;

// Whether work may run on the thread that submits it, when nothing is ahead of it. What can wait
// for the program (a kernel, a host function) may not.
enum class Duration : std::uint8_t { Short, Long };

// One stream's work, in order. Run by a thread of its own, which comes when there is work and goes
// when there has been none for a while.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  static std::shared_ptr<Queue> create();

  // Adds work that runs after all before it and after every point of `after`.
  Point submit(Work work, std::vector<Point> after, Duration duration);

  // The last work given to it.
  Point last();
  bool is_idle() const { return done_.load() == submitted_.load(); }

  // All of these let lazy work run up to the point.
  static bool is_reached(const Point& point);
  static void wait_for(const Point& point);
  // The same look without letting anything run.
  static bool has_reached(const Point& point) {
    return point.queue == nullptr || point.queue->done_.load() >= point.number;
  }

  // What this queue is given from now on comes after the point, and after what that came after.
  // Remembered for those who ask follows(); submit() is told anew.
  void will_follow(const Point& point);
  // Whether what it is given next comes after the point, as far as it was told.
  bool follows(const Point& point) const;

  // Lets this much of the queue run. What it waits for in other queues is let run too.
  void allow(std::uint64_t number);
  void allow_all() { allow(submitted_.load()); }
  // Whether work waits that nobody has let run (Order::Lazy and Order::Random).
  bool is_held() const { return allowed_.load() < submitted_.load(); }

 private:
  static std::uint64_t next_id();

  struct Task {
    Work work;
    std::vector<Point> after;
  };

  // A point by its queue's number, since the queue may be gone by the time somebody asks.
  struct Followed {
    std::uint64_t queue = 0;
    std::uint64_t number = 0;
    std::uint64_t since = 0;  // the first task of ours that comes after it
  };

  Queue() = default;
  void remember(const Followed& followed);  // under lock_
  // All three under lock_.
  bool can_run() const;
  void finish_running();
  void start_worker();
  void run_tasks();

  const std::uint64_t id_ = next_id();

  mutable Lock lock_{LockOrder::SimExecutor};  // guards what follows
  std::vector<Followed> followed_;
  std::deque<Task> waiting_;
  bool running_ = false;  // the task before waiting_.front() runs, on whatever thread
  bool worker_ = false;   // a thread is in run_tasks()
  Condition changed_;     // tasks came, were allowed, or were finished
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> allowed_{0};
};

// Chance, for Order::Random: called at every call of the program, it lets something run or not.
// A slow ticker serves threads that poll without making calls.
void stir_queues();

}  // namespace cuvmm::sim
