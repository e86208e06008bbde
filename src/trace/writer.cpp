// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/log.hpp"
#include "base/start_thread.hpp"
#include "base/undo.hpp"
#include "trace/futex.hpp"
#include "trace/ring.hpp"
#include "trace/sink.hpp"

namespace cuvmm {

namespace {

using trace_format::many_threads;
using trace_format::records_in_a_block;

// One writer at a time.
constinit std::atomic<bool> is_taken{false};

// From this size on, one thread's records get a block of their own; smaller batches share one.
constexpr std::size_t worth_a_block = records_in_a_block / 4;

constexpr std::uint32_t least_ring = 16;
constexpr std::uint32_t largest_ring = 1 << 22;

// Records on their way from rings to a block.
class Batch {
 public:
  Batch() { records_.reserve(records_in_a_block); }
  bool is_full() const { return records_.size() == records_in_a_block; }
  std::size_t size() const { return records_.size(); }
  std::size_t room() const { return records_in_a_block - records_.size(); }

  // Times in rings are on the system's clock; those in files are relative to `start`.
  void add(TraceRecord record, std::uint64_t start) {
    record.time = record.time > start ? record.time - start : 0;
    is_sorted_ = is_sorted_ && (records_.empty() || records_.back().time <= record.time);
    thread_ = records_.empty() || thread_ == record.thread ? record.thread : many_threads;
    records_.push_back(record);
  }
  void write_to(TraceSink& sink, std::uint64_t dropped) {
    if (!is_sorted_) {
      std::stable_sort(records_.begin(), records_.end(),
                       [](const auto& a, const auto& b) { return a.time < b.time; });
    }
    sink.add(records_, thread_, dropped);
    records_.clear();
    is_sorted_ = true;
  }

 private:
  std::vector<TraceRecord> records_;
  std::uint32_t thread_ = 0;
  bool is_sorted_ = true;
};

void stop_recording() {
  constexpr auto others = static_cast<std::uint8_t>(~detail::wanted_by_trace);
  detail::events_are_wanted.fetch_and(others, std::memory_order_relaxed);
}

TraceRecord announcement(const RingOwner& owner, std::uint64_t time) {
  TraceRecord record{.time = time,
                     .event = TraceEvent::Thread,
                     .thread = owner.thread,
                     .other = owner.system_number};
  static_assert(sizeof owner.name == sizeof record.address + sizeof record.size);
  std::memcpy(&record.address, owner.name, sizeof record.address);
  std::memcpy(&record.size, owner.name + sizeof record.address, sizeof record.size);
  return record;
}

}  // namespace

// The state that the writer and its thread share.
class TraceWriter::Work {
 public:
  Work(TraceSink sink, TraceSetup setup) : sink_(std::move(sink)), setup_(std::move(setup)) {}
  ~Work() { drop_facts(); }

  static constinit std::atomic<Work*> running;  // for a forked child

  static Result<void> start_thread(const std::shared_ptr<Work>& work);

  void add(TraceFacts facts);
  bool flush(Duration at_most);
  void ask_to_finish() { is_finishing_.store(true, std::memory_order_release); }
  bool is_finished() const { return has_finished_.load(std::memory_order_acquire); }
  void leave_to_parent() { sink_.leave_to_others(); }
  bool is_of_this_process() const { return process_ == ::getpid(); }

  TraceTotals totals() const;
  const std::string& path() const { return sink_.path(); }
  bool name_was_taken() const { return sink_.name_was_taken(); }

 private:
  // Facts handed to the thread, latest first.
  struct Handed {
    TraceFacts facts;
    Handed* next;
  };

  void run();
  void write_facts();
  void drop_facts();
  void write_rings();
  void write_ring(TraceRing& ring);
  void add_to_batch(const TraceRecord& record);
  void publish_totals();

  // The members below belong to the thread.
  TraceSink sink_;
  const TraceSetup setup_;
  Batch batch_;
  std::uint64_t dropped_ = 0;

  const pid_t process_ = ::getpid();
  std::atomic<Handed*> handed_{nullptr};
  FutexWord asked_{0};  // number of flushes requested
  FutexWord done_{0};
  std::atomic<bool> is_finishing_{false};
  std::atomic<bool> has_finished_{false};
  std::atomic<std::uint64_t> records_in_file_{0};
  std::atomic<std::uint64_t> records_lost_{0};
  std::atomic<Size> size_of_file_{0};
};

constinit std::atomic<TraceWriter::Work*> TraceWriter::Work::running{nullptr};

Result<void> TraceWriter::Work::start_thread(const std::shared_ptr<Work>& work) {
  auto* handed_over = new std::shared_ptr<Work>(work);
  pthread_t thread;
  const int refused = cuvmm::start_thread(
      &thread,
      [](void* argument) -> void* {
        auto* mine = static_cast<std::shared_ptr<Work>*>(argument);
        (*mine)->run();
        delete mine;
        return nullptr;
      },
      handed_over);
  if (refused != 0) {
    delete handed_over;
    return Error{.kind = ErrorKind::SystemFailed, .system_code = refused, .doing = "start thread"};
  }
  ::pthread_setname_np(thread, "cuvmm-trace");
  ::pthread_detach(thread);
  return {};
}

void TraceWriter::Work::run() {
  running = this;
  bool is_finishing = false;
  while (!is_finishing) {
    trace_rings::doorbell.wait(setup_.interval);
    is_finishing = is_finishing_.load(std::memory_order_acquire);
    const std::uint32_t asked = asked_.load(std::memory_order_acquire);
    write_facts();
    write_rings();
    sink_.flush();
    if (is_finishing) {
      running = nullptr;
      sink_.finish(dropped_, now_ns() - setup_.header.start_ns, trace_rings::thread_count());
    }
    publish_totals();
    if (is_finishing) {
      is_taken.store(false, std::memory_order_release);  // another writer may start
      has_finished_.store(true, std::memory_order_release);
    }
    done_.store(asked, std::memory_order_release);
    wake_all(done_);
  }
}

void TraceWriter::Work::add(TraceFacts facts) {
  auto* handed = new Handed{std::move(facts), handed_.load(std::memory_order_relaxed)};
  while (!handed_.compare_exchange_weak(handed->next, handed, std::memory_order_release,
                                        std::memory_order_relaxed)) {
  }
}

void TraceWriter::Work::write_facts() {
  Handed* latest = handed_.exchange(nullptr, std::memory_order_acquire);
  Handed* in_order = nullptr;
  while (latest != nullptr) {
    Handed* next = std::exchange(latest->next, in_order);
    in_order = std::exchange(latest, next);
  }
  while (in_order != nullptr) {
    sink_.add(in_order->facts);
    delete std::exchange(in_order, in_order->next);
  }
}

void TraceWriter::Work::drop_facts() {
  Handed* left = handed_.exchange(nullptr, std::memory_order_acquire);
  while (left != nullptr) delete std::exchange(left, left->next);
}

void TraceWriter::Work::write_rings() {
  dropped_ = trace_rings::lost();
  trace_rings::for_each([&](TraceRing& ring) { write_ring(ring); });
  if (batch_.size() > 0) batch_.write_to(sink_, dropped_);
  dropped_ = trace_rings::lost();
}

void TraceWriter::Work::write_ring(TraceRing& ring) {
  const bool has_ended = ring.has_ended();  // read first: then all its records are visible
  if (batch_.size() >= worth_a_block) batch_.write_to(sink_, dropped_);
  ring.drain([&](std::span<const TraceRecord> records) {
    if (ring.announce()) add_to_batch(announcement(ring.owner(), records.front().time));
    for (const TraceRecord& record : records) add_to_batch(record);
  });
  if (has_ended) ring.set_free();
}

void TraceWriter::Work::add_to_batch(const TraceRecord& record) {
  batch_.add(record, setup_.header.start_ns);
  if (batch_.is_full()) batch_.write_to(sink_, dropped_);
}

void TraceWriter::Work::publish_totals() {
  records_in_file_.store(sink_.records(), std::memory_order_relaxed);
  records_lost_.store(dropped_ + sink_.lost(), std::memory_order_relaxed);
  size_of_file_.store(sink_.size(), std::memory_order_relaxed);
}

bool TraceWriter::Work::flush(Duration at_most) {
  if (!is_of_this_process()) return false;
  const std::uint64_t deadline = now_us() + static_cast<std::uint64_t>(at_most.count());
  const std::uint32_t mine = asked_.fetch_add(1, std::memory_order_acq_rel) + 1;
  trace_rings::doorbell.ring();
  for (;;) {
    const std::uint32_t done = done_.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(done - mine) >= 0) return true;
    if (is_finished()) return false;
    const std::uint64_t now = now_us();
    if (now >= deadline) return false;
    wait_while(done_, done, Duration{deadline - now});
  }
}

TraceTotals TraceWriter::Work::totals() const {
  return {.records = records_in_file_.load(std::memory_order_relaxed),
          .dropped = records_lost_.load(std::memory_order_relaxed),
          .bytes = size_of_file_.load(std::memory_order_relaxed)};
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::start(TraceSetup setup) {
  if (is_taken.exchange(true, std::memory_order_acquire)) {
    return Error::invalid("start trace", "one is being taken already");
  }
  Undo give_back{[]() noexcept { is_taken.store(false, std::memory_order_release); }};

  setup.ring_records = std::bit_ceil(std::clamp(setup.ring_records, least_ring, largest_ring));
  trace_rings::start(setup.ring_records);
  auto sink = TRY(TraceSink::create(setup.file, setup.header, setup.size_cap));
  auto work = std::make_shared<Work>(std::move(sink), std::move(setup));
  TRY(Work::start_thread(work));
  give_back.keep();

  detail::events_are_wanted.fetch_or(detail::wanted_by_trace, std::memory_order_release);
  CUVMM_LOG(Info, "trace file=%s", work->path().c_str());
  return std::unique_ptr<TraceWriter>{new TraceWriter{std::move(work)}};
}

TraceWriter::~TraceWriter() {
  finish();
}

void TraceWriter::add(TraceFacts facts) {
  work_->add(std::move(facts));
}

bool TraceWriter::flush(Duration at_most) {
  return work_->flush(at_most);
}

bool TraceWriter::finish(Duration at_most) {
  if (!work_->is_of_this_process()) return false;
  if (work_->is_finished()) return true;
  stop_recording();
  work_->ask_to_finish();
  return work_->flush(at_most) || work_->is_finished();
}

TraceTotals TraceWriter::totals() const {
  return work_->totals();
}

const std::string& TraceWriter::path() const {
  return work_->path();
}

bool TraceWriter::name_was_taken() const {
  return work_->name_was_taken();
}

void TraceWriter::forget_after_fork() {
  stop_recording();
  trace_rings::forget_after_fork();
  trace_rings::doorbell.forget();
  if (Work* parents = Work::running.exchange(nullptr, std::memory_order_relaxed)) {
    parents->leave_to_parent();
  }
  is_taken.store(false, std::memory_order_relaxed);
}

}  // namespace cuvmm
