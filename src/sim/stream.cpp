// SPDX-License-Identifier: Apache-2.0
#include "sim/stream.hpp"

#include "sim/capture.hpp"
#include "sim/card/turns.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/guard.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// The points outside its own queue that the stream's next work must come after: those that it was
// told to wait for, and those required by the rules of the legacy stream. The caller holds the
// context's submission lock.
std::vector<Point> points_before(Stream& stream, const Context& context) {
  std::vector<Point> points = std::move(stream.next_after);
  stream.next_after.clear();
  if (stream.kind == StreamKind::Legacy) {
    for (const Point& point : context.blocking_work()) points.push_back(point);
  } else if (stream.is_blocking()) {
    const Stream& legacy = *context.legacy_stream();
    if (!legacy.queue->is_idle()) points.push_back(legacy.queue->last());
  }
  return points;
}

// Work on the legacy stream would have to wait for streams that are being captured.
CUresult refuse_implicit_join(const Stream& stream) {
  if (stream.kind != StreamKind::Legacy) return CUDA_SUCCESS;
  const auto context = stream.context.lock();
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : refuse_legacy_work(*context);
}

}  // namespace

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::shared_ptr<Stream> find_stream(const std::shared_ptr<Context>& current, CUstream stream) {
  if (stream == nullptr) return implicit_stream(current);
  if (stream == CU_STREAM_LEGACY) return current->legacy_stream();
  if (stream == CU_STREAM_PER_THREAD) return current->per_thread_stream();
  return Process::get().streams.find(stream);
}

CUresult find_stream_of_any_context(CUstream handle, std::shared_ptr<Stream>* stream) {
  const auto current = current_context();
  const bool is_named =
      handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
  const bool may_do_without = is_named && current.answer == CUDA_ERROR_INVALID_CONTEXT;
  if (current.answer != CUDA_SUCCESS && !may_do_without) return current.answer;
  *stream = find_stream(current.context, handle);
  return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

std::shared_ptr<Stream> implicit_stream(const std::shared_ptr<Context>& current) {
  return current_flavour() == Flavour::PerThread ? current->per_thread_stream()
                                                 : current->legacy_stream();
}

void run_operation(const Operation& operation, Context& context) {
  if (context.sticky_error() != CUDA_SUCCESS || !operation.run) return;
  const OnEngine on_engine{context.device(), operation.type};
  if (!Guard::run([&] { operation.run(context); })) context.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

Point submit_now(const std::shared_ptr<Stream>& stream, Operation operation) {
  const auto context = stream->context.lock();
  if (context == nullptr) return {};
  const Duration duration = operation.duration;
  Work work = [context, operation = std::move(operation)] { run_operation(operation, *context); };
  std::vector<Point> after;
  {
    // Held while the work is queued, so that two threads cannot order a legacy and a blocking
    // stream after each other. Not held while it runs.
    const Holding holding{context->submission_lock()};
    after = points_before(*stream, *context);
    if (!is_eager() || duration == Duration::Long || !after.empty()) {
      return stream->queue->submit(std::move(work), std::move(after), Duration::Long);
    }
  }
  return stream->queue->submit(std::move(work), {}, duration);
}

Point submit_record(const std::shared_ptr<Stream>& stream, Operation operation) {
  const auto context = stream->context.lock();
  if (context == nullptr) return {};
  {
    const Holding holding{context->submission_lock()};
    const bool has_work = !stream->queue->is_idle() || !stream->next_after.empty();
    if (stream->is_blocking() && !has_work) {
      std::vector<Point> after = points_before(*stream, *context);
      if (!after.empty()) {
        Work work = [context, operation = std::move(operation)] {
          run_operation(operation, *context);
        };
        return Queue::create()->submit(std::move(work), std::move(after), Duration::Long);
      }
    }
  }
  return submit_now(stream, std::move(operation));
}

CUresult submit(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (is_captured(*stream)) return add_to_capture(*stream, std::move(operation));
  if (const CUresult refused = refuse_implicit_join(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  submit_now(stream, std::move(operation));
  return CUDA_SUCCESS;
}

void order_after(Stream& stream, const Point& point) {
  const auto context = stream.context.lock();
  if (context == nullptr || point.queue == nullptr) return;
  const Holding holding{context->submission_lock()};
  stream.next_after.push_back(point);
  stream.queue->will_follow(point);
}

std::vector<Point> work_of(Stream& stream) {
  const auto context = stream.context.lock();
  if (context == nullptr) return {};
  const Holding holding{context->submission_lock()};
  std::vector<Point> points = stream.next_after;
  points.push_back(stream.queue->last());
  if (stream.kind == StreamKind::Legacy) {
    for (const Point& point : context->blocking_work()) points.push_back(point);
  }
  return points;
}

bool is_stream_done(Stream& stream) {
  bool done = true;
  for (const Point& point : work_of(stream)) done = Queue::is_reached(point) && done;
  return done;
}

}  // namespace cuvmm::sim
