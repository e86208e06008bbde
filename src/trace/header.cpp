// SPDX-License-Identifier: Apache-2.0
#include "trace/header.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "cuvmm/version.h"
#include "trace/checksum.hpp"
#include "trace/format.hpp"
#include "trace/sections.hpp"

namespace cuvmm {
namespace {

std::uint64_t wall_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// The words of the command line, up to a limit: nobody reads more, and the header's size is
// limited.
std::vector<std::string> command_line() {
  constexpr std::size_t longest = 64 * KiB;
  const Fd file{::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC)};
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while (file.is_open() && text.size() < longest &&
         (got = ::read(file.number(), part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    words.emplace_back(text.c_str() + at);
    at += words.back().size() + 1;
  }
  return words;
}

}  // namespace

TraceHeader TraceHeader::of_this_process() {
  return {.start_ns = now_ns(),
          .wall_ns = wall_now_ns(),
          .process = static_cast<std::uint64_t>(::getpid()),
          .library_version = CUVMM_VERSION_STRING,
          .host = expand_file_name("%h"),
          .command = command_line()};
}

namespace trace_format {
namespace {

Error refused(const char* why) {
  return Error::invalid("read trace", why);
}

void add(SectionWriter& out, const TraceFacts& facts) {
  if (!facts.devices.empty()) {
    out.begin(SectionType::Devices);
    out.number(static_cast<std::uint32_t>(facts.devices.size()));
    for (const TraceDevice& device : facts.devices) {
      out.number(device.ordinal);
      out.number(device.memory);
      out.text(device.name);
    }
    out.end();
  }
  if (!facts.names.empty()) {
    out.begin(SectionType::Names);
    out.number(static_cast<std::uint32_t>(facts.names.size()));
    for (const TraceName& name : facts.names) {
      out.number(name.subject);
      out.number(name.number);
      out.text(name.text);
    }
    out.end();
  }
  if (!facts.stacks.empty()) {
    out.begin(SectionType::Stacks);
    out.number(static_cast<std::uint32_t>(facts.stacks.size()));
    for (const TraceStack& stack : facts.stacks) out.number(stack);
    out.end();
  }
}

bool read_devices(SectionReader& in, TraceHeader& header) {
  for (auto left = in.number<std::uint32_t>(); left > 0 && in.is_good(); --left) {
    TraceDevice device;
    device.ordinal = in.number<std::int32_t>();
    device.memory = in.number<std::uint64_t>();
    device.name = in.text();
    if (in.is_good()) header.facts.devices.push_back(std::move(device));
  }
  return in.is_good();
}

bool read_names(SectionReader& in, TraceHeader& header) {
  for (auto left = in.number<std::uint32_t>(); left > 0 && in.is_good(); --left) {
    TraceName name;
    name.subject = in.number<TraceSubject>();
    name.number = in.number<std::uint64_t>();
    name.text = in.text();
    if (in.is_good()) header.facts.names.push_back(std::move(name));
  }
  return in.is_good();
}

bool read_stacks(SectionReader& in, TraceHeader& header) {
  for (auto left = in.number<std::uint32_t>(); left > 0 && in.is_good(); --left) {
    const auto stack = in.number<TraceStack>();
    if (in.is_good()) header.facts.stacks.push_back(stack);
  }
  return in.is_good();
}

bool read_options(SectionReader& in, TraceHeader& header) {
  for (auto left = in.number<std::uint32_t>(); left > 0 && in.is_good(); --left) {
    TraceOption option;
    option.name = in.text();
    option.value = in.text();
    if (in.is_good()) header.options.push_back(std::move(option));
  }
  return in.is_good();
}

bool read_start(SectionReader& in, TraceHeader& header) {
  header.start_ns = in.number<std::uint64_t>();
  header.wall_ns = in.number<std::uint64_t>();
  header.process = in.number<std::uint64_t>();
  return in.is_good();
}

bool read_section(SectionType type, SectionReader in, TraceHeader& header) {
  switch (type) {
    case SectionType::Start:
      return read_start(in, header);
    case SectionType::Library:
      header.library_version = in.rest();
      return true;
    case SectionType::Mode:
      header.mode = in.rest();
      return true;
    case SectionType::Host:
      header.host = in.rest();
      return true;
    case SectionType::Options:
      return read_options(in, header);
    case SectionType::Command:
      header.command = in.texts();
      return in.is_good();
    case SectionType::Calls:
      header.calls = in.texts();
      return in.is_good();
    case SectionType::Devices:
      return read_devices(in, header);
    case SectionType::Names:
      return read_names(in, header);
    case SectionType::Stacks:
      return read_stacks(in, header);
    default:  // from a later version
      return true;
  }
}

}  // namespace

std::string encode(const TraceHeader& header) {
  SectionWriter out;
  out.begin(SectionType::Start);
  out.number(header.start_ns);
  out.number(header.wall_ns);
  out.number(header.process);
  out.end();
  out.section(SectionType::Library, header.library_version);
  out.section(SectionType::Mode, header.mode);
  out.section(SectionType::Host, header.host);
  out.begin(SectionType::Options);
  out.number(static_cast<std::uint32_t>(header.options.size()));
  for (const TraceOption& option : header.options) {
    out.text(option.name);
    out.text(option.value);
  }
  out.end();
  out.section(SectionType::Command, header.command);
  out.section(SectionType::Calls, header.calls);
  add(out, header.facts);
  const std::string sections = out.take();

  FileHeader start{};
  std::memcpy(start.magic, magic, sizeof magic);
  start.byte_order = byte_order_mark;
  start.major = major_version;
  start.minor = minor_version;
  start.header_size = static_cast<std::uint32_t>(sizeof start + sections.size());
  start.record_size = sizeof(TraceRecord);
  start.block_header_size = sizeof(BlockHeader);
  start.checksum = crc32c(std::as_bytes(std::span{sections}), crc32c(bytes_of(start)));

  std::string bytes{reinterpret_cast<const char*>(&start), sizeof start};
  return bytes + sections;
}

std::string encode(const TraceFacts& facts) {
  SectionWriter out;
  add(out, facts);
  return out.take();
}

Result<std::size_t> header_size(std::span<const std::byte> bytes) {
  FileHeader start;
  constexpr char gzip[] = {'\x1f', '\x8b'};
  if (bytes.size() >= sizeof gzip && std::memcmp(bytes.data(), gzip, sizeof gzip) == 0) {
    return refused("it is compressed: uncompress it with gunzip first");
  }
  if (bytes.size() < sizeof magic || std::memcmp(bytes.data(), magic, sizeof magic) != 0) {
    return refused("not a trace of cuvmm");
  }
  if (bytes.size() < sizeof start) return refused("it ends before its first record");
  std::memcpy(&start, bytes.data(), sizeof start);
  if (start.byte_order != byte_order_mark) return refused("written on a machine of another kind");
  if (start.major > major_version) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "read trace",
                 .subject = "a newer cuvmm wrote it; this one cannot read its format"};
  }
  if (start.major == 0 || start.record_size != sizeof(TraceRecord) ||
      start.block_header_size != sizeof(BlockHeader) || start.header_size < sizeof start ||
      start.header_size > largest_header || start.header_size % unit != 0) {
    return refused("its header is damaged");
  }
  return start.header_size;
}

Result<TraceHeader> decode_header(std::span<const std::byte> bytes) {
  const std::size_t size = TRY(header_size(bytes));
  if (bytes.size() < size) return refused("it ends before its first record");
  bytes = bytes.first(size);

  FileHeader start;
  std::memcpy(&start, bytes.data(), sizeof start);
  const std::uint32_t checksum = std::exchange(start.checksum, 0);
  TraceHeader header;
  if (checksum != crc32c(bytes.subspan(sizeof start), crc32c(bytes_of(start))) ||
      !add_sections(bytes.subspan(sizeof start), header)) {
    return refused("its header is damaged");
  }
  return header;
}

bool add_sections(std::span<const std::byte> sections, TraceHeader& header) {
  SectionReader in{sections};
  while (const auto head = in.next_section()) {
    if (!read_section(head->first, head->second, header)) return false;
  }
  return in.is_good();
}

}  // namespace trace_format
}  // namespace cuvmm
