// SPDX-License-Identifier: Apache-2.0
#include "sim/array.hpp"

#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/registry.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

// The values of the card's attributes.
constexpr Size most_width = 131072;
constexpr Size most_height = 65536;
constexpr Size most_width_and_height_3d = 16384;

Registry<Array, CUarray>& arrays() {
  static constinit MadeOnce<Registry<Array, CUarray>> all;
  return all.get();
}

// Returns 0 if the format is not one of plain numbers.
Size bytes_of(CUarray_format format) {
  switch (format) {
#define CUVMM_ARRAY_FORMAT(format, bytes) \
  case format:                            \
    return bytes;
#include "driver/array_formats.def"
#undef CUVMM_ARRAY_FORMAT
    default:
      return 0;
  }
}

bool is_valid(const CUDA_ARRAY3D_DESCRIPTOR& asked) {
  const bool channels = asked.NumChannels == 1 || asked.NumChannels == 2 || asked.NumChannels == 4;
  if (!channels || bytes_of(asked.Format) == 0 || asked.Width == 0) return false;
  if (asked.Depth == 0) return asked.Width <= most_width && asked.Height <= most_height;
  return asked.Height != 0 && asked.Width <= most_width_and_height_3d &&
         asked.Height <= most_width_and_height_3d && asked.Depth <= most_width_and_height_3d;
}

}  // namespace

Array::Array(const std::shared_ptr<Context>& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
             const ArrayShape& shape, CUdeviceptr storage)
    : context_(context),
      device_(context->device()),
      descriptor_(descriptor),
      shape_(shape),
      storage_(storage) {}

Array::~Array() {
  Process::get().space().free_block(storage_);
}

CUresult Array::create(const std::shared_ptr<Context>& context,
                       const CUDA_ARRAY3D_DESCRIPTOR& asked, CUarray* array) {
  if (!is_valid(asked)) return CUDA_ERROR_INVALID_VALUE;
  ArrayShape shape;
  shape.element_bytes = bytes_of(asked.Format) * asked.NumChannels;
  shape.row_bytes = asked.Width * shape.element_bytes;
  shape.rows = asked.Height != 0 ? asked.Height : 1;
  shape.slices = asked.Depth != 0 ? asked.Depth : 1;
  Device& device = context->device();
  const Size size = round_up(shape.bytes(), settings().granularity);
  const CUdeviceptr storage =
      Process::get().space().allocate_block(device, size, {device.ordinal()});
  if (storage == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *array = arrays().add(std::shared_ptr<Array>{new Array{context, asked, shape, storage}});
  return CUDA_SUCCESS;
}

std::shared_ptr<Array> find_array(CUarray array) {
  return arrays().find(array);
}
std::shared_ptr<Array> remove_array(CUarray array) {
  return arrays().remove(array);
}

void remove_arrays_of(const std::shared_ptr<Context>& context) {
  for (const auto& array : arrays().all()) {
    if (array->context() == context) arrays().remove(arrays().handle_of(array.get()));
  }
}

}  // namespace cuvmm::sim
