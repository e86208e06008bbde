// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "driver/cuda.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

class Lane;
struct Request;

// Operations issued together on one stream, between two marks in the stream's work.
struct Batch {
  Lane* lane = nullptr;
  CUcontext context = nullptr;
  StreamId stream = no_stream;
  CUstream handle = nullptr;
  CUevent begin = nullptr;  // null if it begins when the stream's previous batch ends
  CUevent end = nullptr;
  std::uint32_t operations = 0;
  std::uint64_t estimate_ns = 0;
  std::uint64_t kind = 0;         // of all its operations; 0 if they differ
  std::uint64_t first_since = 0;  // since when it is its stream's first; 0 if it is not
  bool is_held = false;           // its stream makes no progress
  std::uint64_t queued_to = 0;    // where its end is in LaunchQueues; 0 if unknown
};

// What the scheduler needs of the driver, apart from the calls that it issues. Tests substitute
// their own.
class DriverSide {
 public:
  virtual ~DriverSide() = default;

  // Runs on each issuing thread before anything else.
  virtual void thread_begins() = 0;
  virtual void make_current(CUcontext context) = 0;

  // Insert marks into the stream's work. False if a mark cannot be made; the batch then counts as
  // done.
  virtual bool mark_begin(Batch& batch) = 0;
  virtual bool mark_end(Batch& batch) = 0;
  // The device time of a completed batch, whose marks it returns to the pool; nothing if the batch
  // is still running. Time in which the device ran another batch counts as that batch's.
  virtual std::optional<std::uint64_t> device_time(Batch& batch) = 0;
  // Whether the device has yet to reach the point that a record marks, or that a wait waits for.
  virtual bool is_still_pending(const Request&) { return false; }
  // Discards the batch: its context is about to end, so its time will not be asked for.
  virtual void drop(Batch&) {}
};

}  // namespace cuvmm
