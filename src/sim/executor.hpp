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

  // Lets this much of the queue run. What it waits for in other queues is let run too.
  void allow(std::uint64_t number);
  void allow_all() { allow(submitted_.load()); }
  // Whether work waits that nobody has let run (Order::Lazy and Order::Random).
  bool is_held() const { return allowed_.load() < submitted_.load(); }

 private:
  struct Task {
    Work work;
    std::vector<Point> after;
  };

  Queue() = default;
  // All three under lock_.
  bool can_run() const;
  void finish_running();
  void start_worker();
  void run_tasks();

  Lock lock_{LockOrder::SimExecutor};  // guards what follows
  std::deque<Task> waiting_;
  bool running_ = false;         // the task before waiting_.front() runs, on whatever thread
  bool worker_ = false;          // a thread is in run_tasks()
  Condition changed_;            // tasks came, were allowed, or were finished
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> allowed_{0};
};

// Chance, for Order::Random: called at every call of the program, it lets something run or not.
// Whoever polls without calling is served by a slow ticker.
void stir_queues();

}  // namespace cuvmm::sim
