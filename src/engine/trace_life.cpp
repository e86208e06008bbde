// SPDX-License-Identifier: Apache-2.0
#include "engine/trace_life.hpp"

#include <atomic>
#include <cstdlib>

#include "base/at_exit.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "driver/calls.hpp"
#include "trace/current_trace.hpp"
#include "trace/record_event.hpp"
#include "trace/run_variable.hpp"
#include "trace/stacks/sampling.hpp"
#include "trace/writer.hpp"

namespace cuvmm {
namespace {

std::atomic<bool> devices_described{false};

// Together on one cache line, away from other data: every thread being served updates both.
struct alignas(64) OwnTime {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> nanoseconds{0};
};
OwnTime own_time;

TraceHeader header_of(const Options& options) {
  TraceHeader header = TraceHeader::of_this_process();
  for (const CallInfo& call : all_calls()) header.calls.emplace_back(call.name);
  for (const OptionValue& option : options.list()) {
    if (option.origin != Origin::Default) header.options.push_back({option.name, option.value});
    if (option.name == std::string_view{"VMM_MODE"}) header.mode = option.value;
  }
  if (const char* run = std::getenv(run_variable)) header.options.push_back({run_variable, run});
  return header;
}

void finish_trace() {
  TraceWriter* const running = current_trace();
  if (running == nullptr) return;
  if (const std::uint64_t calls = own_time.calls.load(); calls > 0) {
    CUVMM_TRACE(.event = TraceEvent::OwnTime, .size = calls, .other = own_time.nanoseconds.load());
  }
  running->finish();
}

}  // namespace

void start_trace(const Options& options) {
  if (options.trace_file.empty()) return;
  auto started = TraceWriter::start({.file = options.trace_file, .header = header_of(options)});
  if (!started.ok()) {
    CUVMM_LOG(Warning, "%s; the program runs without a trace", started.error().text().c_str());
    return;
  }
  // Never destroyed: its thread may still be running when the process ends.
  set_current_trace(std::move(*started).release());
  start_stack_samples(options.stacks);
  static constinit AtExit finishes_trace{&finish_trace};
  finishes_trace.ensure();
}

void describe_devices_in_trace(const Driver& driver) {
  TraceWriter* running = current_trace();
  if (running == nullptr || devices_described.exchange(true)) return;
  TraceFacts facts;
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (CUdevice device = 0; device < count; ++device) {
    char name[128] = {};
    size_t memory = 0;
    if (driver.cuDeviceGetName(name, sizeof name, device) != CUDA_SUCCESS) continue;
    if (driver.cuDeviceTotalMem(&memory, device) != CUDA_SUCCESS) continue;
    facts.devices.push_back({.ordinal = device, .memory = memory, .name = name});
  }
  running->add(std::move(facts));
}

std::uint64_t begin_own_time() {
  return now_ns();
}

void end_own_time(std::uint64_t began) {
  own_time.calls.fetch_add(1, std::memory_order_relaxed);
  own_time.nanoseconds.fetch_add(now_ns() - began, std::memory_order_relaxed);
}

void forget_trace() {
  own_time.calls.store(0);
  own_time.nanoseconds.store(0);
  forget_stack_samples();
  TraceWriter::forget_after_fork();
  set_current_trace(nullptr);
  devices_described.store(false);
}

}  // namespace cuvmm
