// SPDX-License-Identifier: Apache-2.0
#include "sim/context.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

std::uint64_t next_context_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::shared_ptr<Stream> new_implicit_stream(const std::shared_ptr<Context>& context,
                                            StreamKind kind) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->kind = kind;
  stream->id = next_stream_id();
  return stream;
}

// No object that ends by itself: when the process ends, the main thread's would go before the
// handlers, which may still call.
thread_local std::vector<CUcontext>* this_threads_stack = nullptr;

pthread_key_t key_of_stacks() {
  pthread_key_t key{};
  const auto end = [](void* stack) {
    delete static_cast<std::vector<CUcontext>*>(stack);
    this_threads_stack = nullptr;
  };
  if (::pthread_key_create(&key, end) != 0) std::abort();
  return key;
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

void Context::fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, error);
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  const Writing writing{lock_};
  std::shared_ptr<Stream>& stream = per_thread_[std::this_thread::get_id()];
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
  const Writing writing{lock_};
  std::erase(streams_, stream);
  std::erase_if(retired_work_, [](const Point& point) { return point.queue->is_idle(); });
  if (!stream->queue->is_idle()) retired_work_.push_back(stream->queue->last());
}

std::vector<std::shared_ptr<Stream>> Context::streams() const {
  const Reading reading{lock_};
  return streams_;
}

void Context::forget_streams() {
  const Writing writing{lock_};
  streams_.clear();
  per_thread_.clear();
}

void Context::wait_for_all_work() {
  for (const auto& stream : streams()) wait_for_stream(*stream);
  // It stays listed until it is done: other threads wait for it too.
  std::vector<Point> retired;
  {
    const Reading reading{lock_};
    retired = retired_work_;
  }
  for (const Point& point : retired) Queue::wait_for(point);
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
    static const pthread_key_t key = key_of_stacks();
    this_threads_stack = new std::vector<CUcontext>;
    ::pthread_setspecific(key, this_threads_stack);
  }
  return *this_threads_stack;
}

std::shared_ptr<Context> ContextStack::current() {
  const auto& stack = of_this_thread();
  return stack.empty() ? nullptr : Process::get().contexts.find(stack.back());
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
