// SPDX-License-Identifier: Apache-2.0
// Gates, events, queries and waits.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "order/program.hpp"
#include "order/report.hpp"
#include "support/thread_state.hpp"

namespace cuvmm::order {
namespace {

void open_word(std::uint32_t* word) {
  std::atomic_ref<std::uint32_t>{*word}.store(1);
}
void do_nothing(void*) {}

// A thread that is about to wait in the driver.
struct Waiter {
  std::atomic<pid_t> number{0};
  clockid_t clock{};
  std::int64_t run_ns_before = 0;

  void begins() {
    ::pthread_getcpuclockid(::pthread_self(), &clock);
    run_ns_before = run_ns();
    number.store(::gettid());
    number.notify_all();
  }
  std::int64_t run_ns() const {
    timespec run{};
    ::clock_gettime(clock, &run);
    return run.tv_sec * std::int64_t{1'000'000'000} + run.tv_nsec;
  }
  // It sleeps, or has run for longer than it takes to enter the driver. On a busy machine it may
  // still wait for a core.
  bool has_entered() const {
    return test::is_asleep(number.load()) || run_ns() - run_ns_before >= 1'000'000;
  }
};

}  // namespace

// Gates -------------------------------------------------------------------------------------------

void Program::close_gate() {
  constexpr std::size_t most_closed = 9;
  if (closed_.size() >= most_closed || words_used_ == World::gate_words) return;
  const Stream stream = any_stream();
  const std::size_t word = words_used_++;
  trace("%s: wait for word %zu", name(stream), word);
  must_call(stream, "cuStreamWaitValue32", [&] {
    return cuStreamWaitValue32(handle(stream), word_on_device(word), 1, CU_STREAM_WAIT_VALUE_GEQ);
  });
  closed_.push_back({model_.submit_gate(in_model(stream)), word});
}

void Program::open_gate() {
  if (closed_.empty()) return;
  look_after_waits();
  const std::size_t index = chance_.below(closed_.size());
  const Gate gate = closed_[index];
  closed_.erase(closed_.begin() + static_cast<long>(index));
  trace("set word %zu", gate.word);
  open_word(world_.gates() + gate.word);
  model_.open(gate.node);
}

// The write is submitted after the wait, on an unrelated stream. A hidden barrier between the two
// would deadlock.
void Program::open_gate_by_a_stream() {
  open_gate_on(any_stream());
}

void Program::open_gate_on(Stream stream) {
  if (closed_.empty()) return;
  // Usually the last gate that was closed, which a dependency that is too wide would include.
  const std::size_t index =
      chance_.percent(60) ? closed_.size() - 1 : chance_.below(closed_.size());
  const Gate gate = closed_[index];
  if (model_.depends_on(model_.next_on(in_model(stream)), gate.node)) return;
  look_after_waits();
  closed_.erase(closed_.begin() + static_cast<long>(index));
  trace("%s: write word %zu", name(stream), gate.word);
  must_call(stream, "cuStreamWriteValue32",
            [&] { return cuStreamWriteValue32(handle(stream), word_on_device(gate.word), 1, 0); });
  const Node writer = model_.submit(in_model(stream));
  model_.opens(writer, gate.node);
  query(stream);  // a driver may hold work back until it is queried
}

// Events ------------------------------------------------------------------------------------------

void Program::record(std::size_t event, Stream stream) {
  trace("%s: record event %zu", name(stream), event);
  must_call(stream, "cuEventRecord",
            [&] { return cuEventRecord(world_.events()[event].handle, handle(stream)); });
  events_[event] = {{model_.submit_record(in_model(stream))}};
  event_is_recorded_anew(event);
}

void Program::wait(Stream stream, std::size_t event) {
  trace("%s: wait for event %zu", name(stream), event);
  must_call(stream, "cuStreamWaitEvent",
            [&] { return cuStreamWaitEvent(handle(stream), world_.events()[event].handle, 0); });
  model_.submit_wait(in_model(stream), events_[event]);
}

void Program::record_event() {
  const Stream stream = any_stream();
  record(any_event_of(context_of(stream)), stream);
}
void Program::wait_for_event() {
  wait(any_stream(), chance_.below(events_.size()));
}

std::size_t Program::any_tempting_event() {
  std::size_t event = chance_.below(events_.size());
  for (std::size_t tried = 0; tried < events_.size() && chance_.percent(95); ++tried) {
    const Past past = model_.past_of(events_[event]);
    if (memory_.tempt(model_, chance_, &past)) break;
    event = (event + 1) % events_.size();
  }
  return event;
}

// Usually a stream whose record is complete at once.
Program::Stream Program::any_recording_stream(std::size_t event) {
  Stream stream = 0;
  int tries = 12;
  do {
    stream = any_created_stream();
  } while (context_of(stream) != world_.events()[event].context ||
           (--tries > 0 && model_.is_possibly_blocked(model_.next_on(in_model(stream)))));
  return stream;
}

// From then on the event proves nothing about its earlier record.
void Program::record_anew() {
  const std::size_t event = any_tempting_event();
  const Past before = model_.past_of(events_[event]);
  record(event, any_recording_stream(event));
  if (chance_.percent(70)) ask_after(event);
  allocate_what_is_blocked(&before);
}

// One thread records the event again while another waits for it or queries it. The model accepts
// either order.
void Program::race_for_event() {
  const std::size_t event = any_tempting_event();
  const Stream recording = any_recording_stream(event);
  const Stream waiting = any_created_stream();
  if (recording == waiting) return;
  const CUevent handle_of_event = world_.events()[event].handle;
  CUresult recorded = CUDA_SUCCESS;
  CUresult answer = CUDA_SUCCESS;
  const bool asks = chance_.percent(50);
  trace("%s: record event %zu, while another thread %s", name(recording), event,
        asks ? "asks after it" : "makes a stream wait for it");
  if (!asks) trace("    %s waits", name(waiting));
  {
    const MustReturn watch{"cuEventRecord beside cuEventQuery or cuStreamWaitEvent"};
    world_.thread(1).begin([&] { recorded = cuEventRecord(handle_of_event, handle(recording)); });
    world_.thread(2).begin([&] {
      answer = asks ? cuEventQuery(handle_of_event)
                    : cuStreamWaitEvent(handle(waiting), handle_of_event, 0);
    });
    world_.thread(1).finish();
    world_.thread(2).finish();
  }
  must(recorded, "cuEventRecord");
  const EventRecord before = events_[event];
  events_[event] = {{model_.submit_record(in_model(recording))}};
  event_is_recorded_anew(event);
  EventRecord either = Model::either(before, events_[event]);
  either.may_be_none = either.may_be_none || before.candidates.empty();
  const Past past_before = model_.past_of(before);
  if (asks) {
    compare_query("cuEventQuery", answer, model_.past_of(either));
  } else {
    must(answer, "cuStreamWaitEvent");
    model_.submit_wait(in_model(waiting), either);
  }
  allocate_what_is_blocked(&past_before);
}

// Queries -----------------------------------------------------------------------------------------

void Program::compare_query(const char* what, CUresult answer, const Past& asked) {
  if (answer == CUDA_ERROR_NOT_READY) return;
  must(answer, what);
  if (is_ignored("ready too early")) return;  // then nothing is learnt from the answer
  if (model_.is_surely_blocked(asked)) {
    violation("ready too early", "%s answered CUDA_SUCCESS, but the work is blocked", what);
  }
  model_.learn_complete(asked);
}

CUresult Program::query(Stream stream) {
  const CUresult answer =
      call(stream, "cuStreamQuery", [&] { return cuStreamQuery(handle(stream)); });
  trace("%s: query: %s", name(stream), answer == CUDA_SUCCESS ? "ready" : "not ready");
  compare_query("cuStreamQuery", answer, model_.work_of(in_model(stream)));
  return answer;
}

void Program::query_stream() {
  query(any_stream());
}

void Program::query_event() {
  ask_after(chance_.below(events_.size()));
}

void Program::ask_after(std::size_t event) {
  CUresult answer = CUDA_SUCCESS;
  {
    const MustReturn watch{"cuEventQuery"};
    answer = cuEventQuery(world_.events()[event].handle);
  }
  trace("query event %zu: %s", event, answer == CUDA_SUCCESS ? "ready" : "not ready");
  compare_query("cuEventQuery", answer, model_.past_of(events_[event]));
}

// Waits -------------------------------------------------------------------------------------------

void Program::begin_wait(const char* what, std::function<Past()> covered,
                         std::function<CUresult()> call, std::function<void()> afterwards) {
  const auto is_free = [&](const auto& thread) {
    return std::none_of(waits_.begin(), waits_.end(),
                        [&](const PendingWait& wait) { return wait.thread == thread.get(); });
  };
  auto& threads = world_.waiters();
  const auto thread = std::find_if(threads.begin(), threads.end(), is_free);
  auto answer = std::make_shared<CUresult>(CUDA_SUCCESS);
  auto waiter = std::make_shared<Waiter>();
  waits_.push_back(
      {what, thread->get(), covered(), covered, std::move(afterwards), answer, {}, {}});
  ++counts_.waits;
  (*thread)->begin([answer, waiter, call = std::move(call)] {
    waiter->begins();
    *answer = call();
  });
  waiter->number.wait(0);
  // Usually it is open whether the call covers work submitted from now on.
  if (!chance_.percent(2)) return;
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  if (!waiter->has_entered()) return;
  waits_.back().covered = [past = waits_.back().began_with] { return past; };
}

// A thread that is to wait for the event may not have entered the driver yet.
void Program::event_is_recorded_anew(std::size_t event) {
  for (PendingWait& wait : waits_) {
    if (wait.event != event) continue;
    wait.began_with.surely = {};
    wait.of_later_records |= model_.past_of(events_[event]);
  }
}

bool Program::can_begin_wait() const {
  return waits_.size() < world_.waiters().size();
}

void Program::look_after_waits() {
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    if (!wait->thread->is_done()) {
      Past covered = wait->covered();
      covered |= wait->of_later_records;
      if (model_.is_possibly_blocked(covered)) {
        ++wait;
        continue;
      }
      const MustReturn watch{wait->what};
      wait->thread->finish();
    }
    trace("%s returned", wait->what);
    must(*wait->answer, wait->what);
    if (!is_ignored("returned too early")) {
      if (model_.is_surely_blocked(wait->began_with)) {
        violation("returned too early", "%s returned, but what it waits for is blocked",
                  wait->what);
      }
      model_.learn_complete(wait->began_with);
    }
    if (wait->afterwards) wait->afterwards();
    wait = waits_.erase(wait);
  }
}

// Waits in this thread if the model says that the wait ends, else possibly in another thread.
void Program::wait_for(const char* what, int thread, std::size_t context,
                       std::function<Past()> covered, std::function<CUresult()> call) {
  const Past past = covered();
  if (!model_.is_possibly_blocked(past)) {
    trace("%s", what);
    must(call_on(thread, context, what, call), what);
    if (!is_ignored("returned too early")) {
      model_.learn_complete(past);
    }
  } else if (thread == WorldStream::any_thread && can_begin_wait() && chance_.percent(40)) {
    trace("%s in another thread", what);
    begin_wait(what, std::move(covered),
               [call = std::move(call), in = world_.contexts()[context].handle] {
                 const InContext current{in};
                 return call();
               });
  }
}

void Program::synchronize_stream() {
  const Stream stream = any_stream();
  const CUstream synchronized = handle(stream);
  trace("%s: synchronize", name(stream));
  wait_for(
      "cuStreamSynchronize", world_.streams()[stream].thread, context_of(stream),
      [this, stream] { return model_.work_of(in_model(stream)); },
      [synchronized] { return cuStreamSynchronize(synchronized); });
}

void Program::synchronize_event() {
  const std::size_t event = chance_.below(events_.size());
  const std::size_t waits_before = waits_.size();
  trace("event %zu: synchronize", event);
  wait_for(
      "cuEventSynchronize", WorldStream::any_thread, world_.events()[event].context,
      [this, event, record = events_[event]] {
        Past past = model_.past_of(record);
        past.possibly |= model_.past_of(events_[event]).possibly;
        return past;
      },
      [handle = world_.events()[event].handle] { return cuEventSynchronize(handle); });
  if (waits_.size() > waits_before) waits_.back().event = event;
}

void Program::synchronize_context() {
  const std::size_t context = any_context();
  trace("context %zu: synchronize", context);
  wait_for(
      "cuCtxSynchronize", WorldStream::any_thread, context,
      [this, context] { return model_.work_of_context(context); },
      [] { return cuCtxSynchronize(); });
}

void Program::synchronize_everything() {
  for (std::size_t context = 0; context < world_.contexts().size(); ++context) {
    trace("context %zu: synchronize", context);
    must(call_on(0, context, "cuCtxSynchronize", [] { return cuCtxSynchronize(); }),
         "cuCtxSynchronize");
  }
  model_.learn_complete(model_.work_of_all());
}

// Streams -----------------------------------------------------------------------------------------

void Program::run_host_function() {
  const Stream stream = any_stream();
  trace("%s: host function", name(stream));
  must_call(stream, "cuLaunchHostFunc",
            [&] { return cuLaunchHostFunc(handle(stream), do_nothing, nullptr); });
  model_.submit_host_function(in_model(stream));
}

bool Program::may_end(Stream stream) const {
  return !settings_.ends_idle_streams_only ||
         !model_.is_possibly_blocked(model_.work_of(in_model(stream)));
}

void Program::replace_stream() {
  if (!waits_.empty()) return;  // one of them may wait for the stream
  const Stream stream = any_created_stream();
  if (!may_end(stream)) return;
  trace("%s: destroy it, and create another", name(stream));
  const MustReturn watch{"cuStreamDestroy"};
  world_.replace_stream(stream);
  model_.destroy_stream(in_model(stream));
  streams_[stream].in_model = model_.add_stream(world_.streams()[stream].kind, context_of(stream));
}

// The ending thread's streams keep their work.
void Program::replace_thread() {
  const int thread = chance_.between(1, World::host_threads);
  std::vector<Stream> ending;
  for (Stream stream = 0; stream < streams_.size(); ++stream) {
    if (world_.streams()[stream].thread != thread) continue;
    if (!may_end(stream)) return;
    ending.push_back(stream);
  }
  if (!waits_.empty()) return;  // one of them may wait for these streams
  trace("thread %d ends, and another begins", thread);
  const MustReturn watch{"the end of a thread"};
  world_.replace_thread(thread);
  for (const Stream stream : ending) {
    streams_[stream].in_model = model_.add_stream(StreamKind::PerThread, context_of(stream));
  }
  allocate_what_is_blocked();
}

}  // namespace cuvmm::order
