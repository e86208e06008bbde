// SPDX-License-Identifier: Apache-2.0
// A trace thinned to what a picture can show: a few hundred KiB, however many events there were.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "view/histogram.hpp"
#include "view/raster.hpp"
#include "view/recording.hpp"
#include "view/spans.hpp"

namespace cuvmm::view {

struct PictureRequest {
  std::optional<std::int16_t> device;  // else the first one that memory was taken from
  std::size_t columns = 900;
  std::size_t rows = 384;
  std::size_t samples = 225;  // of fragmentation, over the whole time
};

// What was refused.
struct PictureRefusal {
  std::uint64_t time = 0;
  Size asked = 0;
};

// What a client, or a stream, did.
struct PictureLane {
  std::string name;
  std::vector<std::uint32_t> operations;  // begun in each column
};

struct Picture {
  TraceHeader header;
  std::string note;
  std::int16_t device = 0;
  std::uint64_t events = 0;
  std::uint64_t begin = 0;  // ns; of the first column
  std::uint64_t end = 0;

  // Addresses without the gaps between them, from the lowest up; cells from 0 to 255.
  std::vector<CollapsedAddresses::Part> address_parts;
  Size address_bytes = 0;
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::vector<std::uint8_t> used;
  std::vector<std::uint8_t> mapped;  // where something is used, or could be without a new mapping

  // The most of each column.
  std::vector<Size> requested;
  std::vector<Size> mapped_bytes;
  std::vector<Size> physical;
  Size device_bytes = 0;                 // 0: not known
  std::optional<Size> limit;             // that VMM_LIMIT set
  std::vector<PictureRefusal> refusals;  // the first hundred
  std::uint64_t refusal_count = 0;       //
  Size requested_peak = 0;               //
  Size physical_peak = 0;                //
  std::vector<double> sample_times;      // in columns
  std::vector<double> fragmentation;     // see Occupancy; empty: of how much memory is not known
  std::vector<double> rounding_waste;    // share of what was granted that nobody asked for

  Histogram sizes;                 // bytes
  Histogram lifetimes;             // us
  Histogram lasting_sizes;         // of blocks that were held to the end
  std::vector<PictureLane> lanes;  // of clients, or else of streams; the busiest first
  bool lanes_are_clients = false;
};

// Reads it twice. `progress` is told now and then how far that is, from 0 to 1.
Result<Picture> take_picture(Recording& recording, const PictureRequest& request,
                             void (*progress)(double) = nullptr);

// For those who draw; docs/picture_format.md.
std::string to_json(const std::vector<Picture>& pictures);

}  // namespace cuvmm::view
