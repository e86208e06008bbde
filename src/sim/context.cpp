// SPDX-License-Identifier: Apache-2.0
#include "sim/context.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/thread_key.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

std::uint64_t next_context_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Unlike std::thread::id, never reused: a new thread must not inherit the stream of one that has
// ended.
std::uint64_t number_of_this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local std::uint64_t number = 0;
  if (number == 0) number = ++last;
  return number;
}

std::shared_ptr<Stream> new_implicit_stream(const std::shared_ptr<Context>& context,
                                            StreamKind kind) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->kind = kind;
  stream->id = next_stream_id();
  return stream;
}

// Not an object with a destructor: at process exit the main thread's object would be destroyed
// before the exit handlers run, which may still make calls.
thread_local std::vector<CUcontext>* this_threads_stack = nullptr;

void end_of_thread(void* stack) {
  for (const auto& context : Process::get().contexts.all()) context->retire_per_thread_stream();
  delete static_cast<std::vector<CUcontext>*>(stack);
  this_threads_stack = nullptr;
}

}  // namespace

Context::Context(Device& device, unsigned flags, bool primary)
    : device_(device),
      primary_(primary),
      id_(next_context_id()),
      flags_(flags),
      small_blocks_(device) {}

std::shared_ptr<Context> Context::create(Device& device, unsigned flags, bool primary) {
  std::shared_ptr<Context> context{new Context{device, flags, primary}};
  context->legacy_ = new_implicit_stream(context, StreamKind::Legacy);
  context->streams_.push_back(context->legacy_);
  return context;
}

CUcontext Context::handle() const {
  return primary_ ? device_.primary_handle()
                  : reinterpret_cast<CUcontext>(const_cast<Context*>(this));
}

void Context::fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, error);
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  const Writing writing{lock_};
  std::shared_ptr<Stream>& stream = per_thread_[number_of_this_thread()];
  if (stream == nullptr) {
    stream = new_implicit_stream(shared_from_this(), StreamKind::PerThread);
    streams_.push_back(stream);
  }
  return stream;
}

void Context::add_stream(const std::shared_ptr<Stream>& stream) {
  const Writing writing{lock_};
  streams_.push_back(stream);
}

void Context::retire_stream(const std::shared_ptr<Stream>& stream) {
  // Its submitted work still runs, even if no call waits for it.
  stream->queue->allow_all();
  stream->queue->close();
  const Writing writing{lock_};
  std::erase(streams_, stream);
  std::erase_if(retired_work_, [](const RetiredWork& work) { return work.point.queue->is_idle(); });
  if (stream->queue->is_idle()) return;
  retired_work_.push_back({stream->queue->last(), stream->is_blocking()});
}

void Context::retire_per_thread_stream() {
  std::shared_ptr<Stream> stream;
  {
    const Writing writing{lock_};
    const auto own = per_thread_.find(number_of_this_thread());
    if (own == per_thread_.end()) return;
    stream = std::move(own->second);
    per_thread_.erase(own);
  }
  retire_stream(stream);
}

std::vector<std::shared_ptr<Stream>> Context::streams() const {
  const Reading reading{lock_};
  return streams_;
}

std::vector<Point> Context::blocking_work() const {
  const Reading reading{lock_};
  std::vector<Point> points;
  for (const auto& stream : streams_) {
    if (stream->is_blocking() && !stream->queue->is_idle()) points.push_back(stream->queue->last());
  }
  for (const RetiredWork& work : retired_work_) {
    if (work.is_blocking && !work.point.queue->is_idle()) points.push_back(work.point);
  }
  return points;
}

void Context::forget_streams() {
  const Writing writing{lock_};
  streams_.clear();
  per_thread_.clear();
}

void Context::wait_for_all_work() {
  // Collects all work before the first wait: work that other threads submit during the wait does
  // not prolong it (measured).
  std::vector<Point> submitted;
  for (const auto& stream : streams()) {
    const std::vector<Point> work = work_of(*stream);
    submitted.insert(submitted.end(), work.begin(), work.end());
  }
  {
    // Retired work stays listed until it is done, since other threads wait for it too.
    const Reading reading{lock_};
    for (const RetiredWork& work : retired_work_) submitted.push_back(work.point);
  }
  for (const Point& point : submitted) Queue::wait_for(point);
}

bool Context::enable_peer(const std::shared_ptr<Context>& peer) {
  const Writing writing{lock_};
  return peers_.insert(peer->handle()).second;
}

bool Context::disable_peer(const std::shared_ptr<Context>& peer) {
  const Writing writing{lock_};
  return peers_.erase(peer->handle()) != 0;
}

bool Context::has_peer(const Context& peer) const {
  const Reading reading{lock_};
  return peers_.count(peer.handle()) != 0;
}

std::vector<int> Context::accessors() const {
  std::vector<int> devices{device_.ordinal()};
  for (const auto& other : Process::get().contexts.all()) {
    const int ordinal = other->device().ordinal();
    if (other.get() == this || !other->has_peer(*this)) continue;
    if (std::find(devices.begin(), devices.end(), ordinal) == devices.end()) {
      devices.push_back(ordinal);
    }
  }
  return devices;
}

std::vector<CUcontext>& ContextStack::of_this_thread() {
  if (this_threads_stack == nullptr) [[unlikely]] {
    static constinit ThreadKey end{&end_of_thread};
    this_threads_stack = new std::vector<CUcontext>;
    if (!end.set(this_threads_stack)) std::abort();
  }
  return *this_threads_stack;
}

std::shared_ptr<Context> ContextStack::current() {
  const auto& stack = of_this_thread();
  return stack.empty() ? nullptr : Process::get().contexts.find(stack.back());
}

bool may_be_current(CUcontext handle) {
  Process& process = Process::get();
  if (process.contexts.find(handle) != nullptr) return true;
  for (int ordinal = 0; ordinal < process.device_count(); ++ordinal) {
    if (process.device(ordinal)->primary_handle() == handle) return true;
  }
  return false;
}

CurrentContext current_context() {
  const auto& stack = ContextStack::of_this_thread();
  if (stack.empty() || stack.back() == nullptr) return {nullptr, CUDA_ERROR_INVALID_CONTEXT};
  auto context = Process::get().contexts.find(stack.back());
  if (context == nullptr) return {nullptr, CUDA_ERROR_CONTEXT_IS_DESTROYED};
  const CUresult sticky = context->sticky_error();
  if (sticky != CUDA_SUCCESS) return {nullptr, sticky};
  return {std::move(context), CUDA_SUCCESS};
}

}  // namespace cuvmm::sim
