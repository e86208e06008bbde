// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>

#include "view/formats/formats.hpp"

namespace cuvmm::view {

Result<void> write_csv(Recording& recording, OutputFile& out) {
  out.write(
      "time_us,event,thread,device,context,client,stream,call,result,flags,address,size,other,"
      "detail\n");
  fmt::memory_buffer line;
  while (const TraceRecord* record = recording.next()) {
    if (out.has_failed()) break;
    line.clear();
    const char* name = name_of(record->event);
    auto end = std::back_inserter(line);
    fmt::format_to(end, "{}.{:03},", record->time / 1000, record->time % 1000);
    if (name != nullptr) {
      fmt::format_to(end, "{},", name);
    } else {
      fmt::format_to(end, "{},", static_cast<unsigned>(record->event));
    }
    fmt::format_to(end, "{},{},{},{},{:#x},{},{},{:#x},{:#x},{},{:#x},{}\n", record->thread,
                   record->device, record->context, record->client, record->stream,
                   recording.header().call(record->call), record->result, record->flags,
                   record->address, record->size, record->other, record->detail);
    out.write({line.data(), line.size()});
  }
  return recording.status();
}

}  // namespace cuvmm::view
