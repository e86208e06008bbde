// SPDX-License-Identifier: Apache-2.0
#include "sim/executor.hpp"

#include <chrono>
#include <mutex>
#include <thread>

#include "base/made_once.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

using namespace std::chrono_literals;

// The queues among which SimWhen::Random picks while it holds work back.
class Stirred {
 public:
  static Stirred& get() {
    static constinit MadeOnce<Stirred> stirred;
    return stirred.get();
  }

  void add(const std::shared_ptr<Queue>& queue) {
    const std::lock_guard holding{lock_};
    std::erase_if(queues_, [](const auto& known) { return known.expired(); });
    queues_.push_back(queue);
    if (!ticking_) {
      ticking_ = true;
      std::thread{[this] { tick(); }}.detach();
    }
  }

  void maybe_allow_one() {
    std::shared_ptr<Queue> chosen;
    {
      const std::lock_guard holding{lock_};
      if (queues_.empty() || chance_() % 4 != 0) return;
      chosen = queues_[chance_() % queues_.size()].lock();
    }
    if (chosen != nullptr && chosen->is_held()) chosen->allow_all();
  }

 private:
  [[noreturn]] void tick() {
    for (;;) {
      std::this_thread::sleep_for(2ms);
      maybe_allow_one();
    }
  }

  std::mutex lock_;
  std::vector<std::weak_ptr<Queue>> queues_;
  std::mt19937_64 chance_{settings().order.seed};
  bool ticking_ = false;
};

}  // namespace

void run_random_queues() {
  if (settings().order.when == SimWhen::Random) Stirred::get().maybe_allow_one();
}

std::shared_ptr<Queue> Queue::create() {
  std::shared_ptr<Queue> queue{new Queue};
  if (settings().order.when == SimWhen::Random) Stirred::get().add(queue);
  return queue;
}

Point Queue::last() {
  return {shared_from_this(), submitted_.load()};
}

Point Queue::submit(Work work, std::vector<Point> after, Duration duration) {
  std::erase_if(after, [](const Point& point) {
    return point.queue == nullptr || point.queue->done_.load() >= point.number;
  });
  const bool eager = is_eager();
  Holding holding{lock_};
  const std::uint64_t number = submitted_.load() + 1;
  submitted_.store(number);
  if (eager) allowed_.store(number);
  Task task{std::move(work), std::move(after)};
  if (eager && duration == Duration::Short && !running_ && waiting_.empty() && task.after.empty()) {
    running_ = true;
    holding.unlock();
    task.work();
    task = {};  // its destructor may take other locks
    holding.lock();
    finish_running();
    return {shared_from_this(), number};
  }
  waiting_.push_back(std::move(task));
  if (eager) start_worker();
  return {shared_from_this(), number};
}

bool Queue::is_reached(const Point& point) {
  if (point.queue == nullptr || point.queue->done_.load() >= point.number) return true;
  point.queue->allow(point.number);
  return point.queue->done_.load() >= point.number;
}

void Queue::wait_for(const Point& point) {
  if (is_reached(point)) return;
  Queue& queue = *point.queue;
  Holding holding{queue.lock_};
  queue.changed_.wait(holding, [&] { return queue.done_.load() >= point.number; });
}

void Queue::allow(std::uint64_t number) {
  std::vector<Point> needed;
  {
    const Holding holding{lock_};
    if (allowed_.load() >= number) return;
    std::uint64_t task_number = done_.load() + (running_ ? 1 : 0);
    for (const Task& task : waiting_) {
      if (++task_number > number) break;
      if (task_number > allowed_.load()) {
        needed.insert(needed.end(), task.after.begin(), task.after.end());
      }
    }
    allowed_.store(number);
    start_worker();
  }
  for (const Point& point : needed) point.queue->allow(point.number);
}

std::uint64_t Queue::next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void Queue::remember(const Followed& followed) {
  for (Followed& known : followed_) {
    if (known.queue != followed.queue) continue;
    if (known.number < followed.number) known = followed;
    return;
  }
  constexpr std::size_t most = 64;  // forgetting one only costs some reuse
  if (followed_.size() == most) followed_.erase(followed_.begin());
  followed_.push_back(followed);
}

void Queue::will_follow(const Point& point) {
  if (point.queue == nullptr || point.queue.get() == this) return;
  std::vector<Followed> indirect;
  {
    const Holding holding{point.queue->lock_};
    for (const Followed& followed : point.queue->followed_) {
      if (followed.since <= point.number && followed.queue != id_) indirect.push_back(followed);
    }
  }
  const Holding holding{lock_};
  const std::uint64_t since = submitted_.load() + 1;
  remember({point.queue->id_, point.number, since});
  for (const Followed& followed : indirect) remember({followed.queue, followed.number, since});
}

bool Queue::follows(const Point& point) const {
  if (point.queue == nullptr || point.queue.get() == this) return true;
  const Holding holding{lock_};
  for (const Followed& known : followed_) {
    if (known.queue == point.queue->id_) return known.number >= point.number;
  }
  return false;
}

bool Queue::can_run() const {
  return !running_ && !waiting_.empty() && done_.load() < allowed_.load();
}

void Queue::finish_running() {
  running_ = false;
  done_.fetch_add(1);
  if (can_run()) start_worker();
  changed_.notify_all();
}

void Queue::close() {
  const Holding holding{lock_};
  closed_ = true;
  changed_.notify_all();
}

void Queue::start_worker() {
  changed_.notify_all();
  if (worker_ || waiting_.empty()) return;
  worker_ = true;
  std::thread{[queue = shared_from_this()] { queue->run_tasks(); }}.detach();
}

void Queue::run_tasks() {
  constexpr auto idle_time = 500ms;
  Holding holding{lock_};
  for (;;) {
    changed_.wait_for(holding, idle_time, [this] { return can_run() || has_ended(); });
    if (!can_run()) break;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    holding.unlock();
    for (const Point& point : task.after) wait_for(point);
    task.work();
    task = {};
    holding.lock();
    finish_running();
  }
  worker_ = false;
}

}  // namespace cuvmm::sim
