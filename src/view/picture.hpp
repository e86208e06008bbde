// SPDX-License-Identifier: Apache-2.0
// A trace reduced to what a picture can show: a few hundred KiB, however many events there were.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "view/histogram.hpp"
#include "view/raster.hpp"
#include "view/recording.hpp"
#include "view/spans.hpp"
#include "view/stack_uses.hpp"

namespace cuvmm::view {

struct PictureRequest {
  std::optional<std::int16_t> device;  // default: the first with memory events
  std::size_t columns = 900;
  std::size_t rows = 384;
  std::size_t samples = 225;  // samples of fragmentation over time
};

// A limit on the device's memory that applied from a moment on.
struct PictureLimit {
  std::uint64_t time = 0;
  std::optional<Size> bytes;  // nothing: no limit any more
};

// A refused request.
struct PictureRefusal {
  std::uint64_t time = 0;
  Size asked = 0;
};

// The activity of one client or stream.
struct PictureLane {
  std::string name;
  std::vector<std::uint32_t> operations;  // started in each column
};

struct Picture {
  TraceHeader header;
  std::string note;
  std::int16_t device = 0;
  std::size_t device_count = 0;  // devices that the program used
  std::uint64_t events = 0;
  std::uint64_t begin = 0;  // ns; of the first column
  std::uint64_t end = 0;

  // Addresses in ascending order, with gaps removed; cell values range from 0 to 255.
  std::vector<CollapsedAddresses::Part> address_parts;
  Size address_bytes = 0;
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::vector<std::uint8_t> used;
  std::vector<std::uint8_t> mapped;  // used, or mapped and free

  // The maximum in each column.
  std::vector<Size> requested;
  std::vector<Size> mapped_bytes;
  std::vector<Size> physical;
  std::vector<Size> spilled;
  bool is_native = false;  // the driver served all blocks: `physical` is what was requested of it
  Size device_bytes = 0;   // 0: unknown
  std::vector<PictureLimit> limits;      // in the order of time
  std::vector<PictureRefusal> refusals;  // the first hundred
  std::uint64_t refusal_count = 0;
  Size largest_refusal = 0;
  Size requested_peak = 0;
  Size physical_peak = 0;
  Size spilled_peak = 0;
  std::vector<double> sample_times;    // in columns
  std::vector<double> fragmentation;   // see Occupancy; empty: device size unknown
  std::vector<double> rounding_waste;  // share of granted bytes that were not requested

  Histogram sizes;                 // bytes
  Histogram lifetimes;             // us
  Histogram lasting_sizes;         // of blocks never freed
  std::vector<PictureLane> lanes;  // clients, or else streams; busiest first
  bool lanes_are_clients = false;
  std::vector<FlameFrame> flames;  // empty if the trace has no call stacks
};

// Reads the recording twice. Calls `progress` from time to time with a value from 0 to 1.
Result<Picture> take_picture(Recording& recording, const PictureRequest& request,
                             void (*progress)(double) = nullptr);

// For renderers; see docs/internals/picture_format.md.
std::string to_json(const std::vector<Picture>& pictures);

}  // namespace cuvmm::view
