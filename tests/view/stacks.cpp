// SPDX-License-Identifier: Apache-2.0
// Memory by call stack, from hand-made traces.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdio>

#include "view/elf_symbols.hpp"
#include "view/recorded.hpp"
#include "view/stack_uses.hpp"

namespace cuvmm::test {
namespace {

using namespace view;

TraceRecord sampled(std::uint64_t time, std::uint64_t address, Size stands_for,
                    std::uint32_t stack) {
  return {.time = time,
          .event = TraceEvent::Sampled,
          .device = 0,
          .context = 1,
          .detail = stack,
          .address = address,
          .other = stands_for};
}

// main calls load and step.
TraceHeader header_with_stacks() {
  TraceHeader header = header_of_one_device();
  header.facts.names = {{TraceSubject::Place, 1, "main (train.py:9)"},
                        {TraceSubject::Place, 2, "load (train.py:2)"},
                        {TraceSubject::Place, 3, "step (train.py:5)"}};
  header.facts.stacks = {{1, 0, 1}, {2, 1, 2}, {3, 1, 3}};
  return header;
}

TEST(StackUses, TellWhoHoldsMemoryAtThePeakAndWhoNeverFreesIt) {
  StackUses uses;
  for (const TraceRecord& record :
       {allocated(1, 0x1000, 10 * MiB), sampled(1, 0x1000, 10 * MiB, 2),
        allocated(2, 0x2000, 2 * MiB), sampled(2, 0x2000, 4 * MiB, 3), freed(3, 0x2000),
        allocated(4, 0x2000, 1 * MiB), sampled(4, 0x2000, 1 * MiB, 3), freed(5, 0x1000)}) {
    uses.add(record);
  }
  StackNames names{header_with_stacks()};
  const auto sorted = uses.sorted(names);
  ASSERT_EQ(sorted.size(), 2u);
  EXPECT_EQ(sorted[0].stack, 2u);
  EXPECT_EQ(sorted[0].at_peak, 10 * MiB);
  EXPECT_EQ(sorted[0].at_end, 0u);
  EXPECT_EQ(sorted[1].at_peak, 4 * MiB);
  EXPECT_EQ(sorted[1].at_end, 1 * MiB);
  EXPECT_EQ(sorted[1].allocated, 5 * MiB);
  EXPECT_EQ(sorted[1].samples, 2u);
}

TEST(StackUses, GiveASampleTheStackThatBecomesKnownLater) {
  constexpr std::uint32_t later = 1u << 24;
  StackUses uses;
  for (const TraceRecord& record :
       {allocated(1, 0x1000, 10 * MiB), sampled(1, 0x1000, 10 * MiB, later),
        TraceRecord{.time = 2, .event = TraceEvent::SampledAs, .detail = 3, .address = later},
        allocated(3, 0x2000, 2 * MiB), sampled(3, 0x2000, 2 * MiB, 3)}) {
    uses.add(record);
  }
  StackNames names{header_with_stacks()};
  const auto sorted = uses.sorted(names);
  ASSERT_EQ(sorted.size(), 1u);
  EXPECT_EQ(sorted[0].stack, 3u);
  EXPECT_EQ(sorted[0].at_peak, 12 * MiB);
}

TEST(StackUses, KeepTheExactPeak) {
  StackUses uses;
  for (const TraceRecord& record :
       {allocated(1, 0x1000, 1000 * MiB), sampled(1, 0x1000, 1000 * MiB, 2), freed(2, 0x1000),
        allocated(3, 0x2000, 1001 * MiB), sampled(3, 0x2000, 1001 * MiB, 3), freed(4, 0x2000)}) {
    uses.add(record);
  }
  StackNames names{header_with_stacks()};
  const auto sorted = uses.sorted(names);
  ASSERT_EQ(sorted.size(), 2u);
  EXPECT_EQ(sorted[0].stack, 3u);
  EXPECT_EQ(sorted[0].at_peak, 1001 * MiB);
  EXPECT_EQ(sorted[1].at_peak, 0u);
}

TEST(StackUses, StacksWithTheSameNamesAreOne) {
  TraceHeader header = header_with_stacks();
  header.facts.names.push_back({TraceSubject::Place, 4, "step (train.py:5)"});
  header.facts.stacks.push_back({4, 1, 4});
  StackNames names{header};
  StackUses uses;
  for (const TraceRecord& record :
       {allocated(1, 0x1000, 10 * MiB), sampled(1, 0x1000, 10 * MiB, 4),
        allocated(2, 0x2000, 2 * MiB), sampled(2, 0x2000, 2 * MiB, 3),
        allocated(3, 0x3000, 1 * MiB), sampled(3, 0x3000, 1 * MiB, 2)}) {
    uses.add(record);
  }
  const auto sorted = uses.sorted(names);
  ASSERT_EQ(sorted.size(), 2u);
  EXPECT_EQ(sorted[0].stack, 3u);
  EXPECT_EQ(sorted[0].at_peak, 12 * MiB);
  EXPECT_EQ(sorted[0].samples, 2u);
}

TEST(StackUses, IgnoreASampleOfMemoryThatIsNotTheDevices) {
  StackUses uses;
  uses.add(allocated(1, 0x1000, MiB, trace_flag::on_host));
  uses.add(sampled(1, 0x1000, MiB, 2));
  EXPECT_TRUE(uses.is_empty());
}

TEST(StackUses, AFlameGraphAddsWhatIsCalledToTheCaller) {
  StackUses uses;
  for (const TraceRecord& record :
       {allocated(1, 0x1000, 10 * MiB), sampled(1, 0x1000, 10 * MiB, 2),
        allocated(2, 0x2000, 4 * MiB), sampled(2, 0x2000, 4 * MiB, 3),
        allocated(3, 0x3000, 1 * MiB), sampled(3, 0x3000, 1 * MiB, 0)}) {
    uses.add(record);
  }
  const TraceHeader header = header_with_stacks();
  StackNames names{header};
  const auto frames = uses.flames(names);
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[0].name, "(unknown)");
  EXPECT_EQ(frames[1].name, "main (train.py:9)");
  EXPECT_EQ(frames[1].caller, -1);
  EXPECT_EQ(frames[1].at_peak, 14 * MiB);
  EXPECT_EQ(frames[2].name, "load (train.py:2)");
  EXPECT_EQ(frames[2].caller, 1);
  EXPECT_EQ(frames[3].at_peak, 4 * MiB);
}

TEST(StackNames, AStackThatCallsItselfHasNoCaller) {
  TraceHeader header = header_with_stacks();
  header.facts.stacks = {{1, 2, 1}, {2, 2, 2}};
  StackNames names{header};
  EXPECT_EQ(names.names_of(1), std::vector<std::string>{"(unknown)"});
  EXPECT_EQ(names.names_of(2), std::vector<std::string>{"(unknown)"});
}

TEST(StackNames, SurviveTheFile) {
  OwnFile file;
  TraceHeader header = header_of_one_device();
  auto sink = TraceSink::create(file.path(), header, unlimited);
  ASSERT_TRUE(sink.ok());
  const TraceFacts facts = header_with_stacks().facts;
  sink->add(TraceFacts{.devices = {}, .names = facts.names, .stacks = facts.stacks});
  sink->finish(0, 0, 1);
  const auto recording = opened(file.path());
  EXPECT_EQ(recording.header().facts.stacks, facts.stacks);
  StackNames names{recording.header()};
  EXPECT_EQ(names.names_of(3),
            (std::vector<std::string>{"step (train.py:5)", "main (train.py:9)"}));
}

extern "C" [[gnu::noinline]] int cuvmm_test_function_with_a_name(int number) {
  return number * 7 + 1;
}

// The address of that function in the file.
std::uint64_t address_in_program() {
  const auto function = reinterpret_cast<std::uint64_t>(&cuvmm_test_function_with_a_name);
  Dl_info program{};
  EXPECT_NE(::dladdr(reinterpret_cast<const void*>(function), &program), 0);
  return function - reinterpret_cast<std::uint64_t>(program.dli_fbase);
}

TEST(ElfSymbols, NameTheFunctionsOfThisProgram) {
  const auto symbols = ElfSymbols::of_file("/proc/self/exe", unlimited);
  EXPECT_EQ(symbols.function_at(address_in_program()), "cuvmm_test_function_with_a_name");
  EXPECT_EQ(symbols.function_at(1), std::nullopt);
}

TEST(ElfSymbols, AFileThatHasChangedSinceTheTraceHasNone) {
  const auto symbols = ElfSymbols::of_file("/proc/self/exe", 1);
  EXPECT_EQ(symbols.function_at(address_in_program()), std::nullopt);
}

TEST(ElfSymbols, ADamagedFileIsReadWithinItsBounds) {
  std::FILE* const program = std::fopen("/proc/self/exe", "r");
  ASSERT_NE(program, nullptr);
  std::string bytes(4096, '\0');
  ASSERT_EQ(std::fread(bytes.data(), 1, bytes.size(), program), bytes.size());
  std::fclose(program);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{16}, std::size_t{64}, bytes.size()}) {
    OwnFile cut;
    std::FILE* const file = std::fopen(cut.path().c_str(), "w");
    ASSERT_EQ(std::fwrite(bytes.data(), 1, length, file), length);
    std::fclose(file);
    EXPECT_FALSE(ElfSymbols::of_file(cut.path(), unlimited).function_at(0x1000)) << length;
  }
}

}  // namespace
}  // namespace cuvmm::test
