// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "driver/cuda.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

class Lane;
struct Request;

// What was issued together on one stream, between two marks in the stream's work.
struct Batch {
  Lane* lane = nullptr;
  CUcontext context = nullptr;
  StreamId stream = no_stream;
  CUstream handle = nullptr;
  CUevent begin = nullptr;  // none where it begins when the one before it on the stream ends
  CUevent end = nullptr;
  std::uint32_t operations = 0;
  std::uint64_t estimate_ns = 0;
  std::uint64_t kind = 0;  // of all its operations; 0 where they are of several
  std::uint64_t began_at = 0;
};

// The driver as the scheduler needs it beside the calls that it issues. Tests put their own in.
class DriverSide {
 public:
  virtual ~DriverSide() = default;

  // On each issuing thread, before anything else.
  virtual void thread_begins() = 0;
  virtual void make_current(CUcontext context) = 0;

  // Marks in the stream's work. False where none can be made: then the batch counts as done.
  virtual bool mark_begin(Batch& batch) = 0;
  virtual bool mark_end(Batch& batch) = 0;
  // The device time of a batch that is done; it gives its marks back. Time that another batch had
  // the device before counts as that one's.
  virtual std::optional<std::uint64_t> device_time(Batch& batch) = 0;
  // Whether the device is yet to come to what a record stands for, or a wait waits for.
  virtual bool is_yet_to_come(const Request&) { return false; }
  // Nobody will ask: its context is about to end.
  virtual void drop(Batch&) {}
};

}  // namespace cuvmm
