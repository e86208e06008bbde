// SPDX-License-Identifier: Apache-2.0
// Random programs over streams, events and buffers against a sequential oracle. The programs are
// free of races: before a step touches a buffer, its stream waits for any earlier use of the buffer
// that is not yet ordered before it. So the order of the calls is one valid order of the work, and
// running the steps one after another on the host gives the expected contents.
#include <algorithm>
#include <array>
#include <memory>
#include <random>

#include "streams_support.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr std::size_t stream_count = 5;  // two non-blocking, one blocking, legacy, per-thread
constexpr std::size_t buffer_count = 6;
constexpr std::size_t words_in_buffer = 1024;

using Words = std::vector<std::uint32_t>;

// How many steps of each stream are ordered before a point in the program: a vector clock.
using Clock = std::array<int, stream_count>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < stream_count; ++i) clock[i] = std::max(clock[i], other[i]);
}

enum class StreamKind { NonBlocking, Blocking, Legacy, PerThread };
constexpr std::array<StreamKind, stream_count> kinds = {
    StreamKind::NonBlocking, StreamKind::NonBlocking, StreamKind::Blocking, StreamKind::Legacy,
    StreamKind::PerThread};
constexpr std::size_t legacy = 3;

bool ordered_with_legacy(StreamKind kind) {
  return kind == StreamKind::Blocking || kind == StreamKind::PerThread;
}

// Knows which steps happen before which, by the rules of streams and events alone.
class HappensBefore {
 public:
  // Submits a step to a stream. Returns what is ordered before it.
  const Clock& step(std::size_t stream) {
    Clock& clock = clocks_[stream];
    if (kinds[stream] == StreamKind::Legacy) {
      for (std::size_t i = 0; i < stream_count; ++i) {
        if (ordered_with_legacy(kinds[i])) join(clock, clocks_[i]);
      }
    } else if (ordered_with_legacy(kinds[stream])) {
      join(clock, clocks_[legacy]);
    }
    ++clock[stream];
    return clock;
  }
  // The work that an event is behind. On a blocking stream the record is not a step itself: a
  // stream that waits for this stream does not wait for work that the event is behind by the legacy
  // rule (measured).
  Clock record(std::size_t stream) {
    if (!ordered_with_legacy(kinds[stream])) return step(stream);
    Clock clock = clocks_[stream];
    join(clock, clocks_[legacy]);
    return clock;
  }
  // Not a step itself: the stream's next step is ordered behind the event.
  void wait(std::size_t stream, const Clock& event) { join(clocks_[stream], event); }
  // The host knows that this work is complete, so every later call is ordered behind it.
  void host_waited_for(const Clock& done) {
    for (Clock& clock : clocks_) join(clock, done);
  }
  const Clock& of(std::size_t stream) const { return clocks_[stream]; }

 private:
  std::array<Clock, stream_count> clocks_{};
};

// The last steps that wrote and read a buffer, as (stream, number of the step on it).
struct Uses {
  int writer_stream = -1;
  int writer_step = 0;
  Clock readers{};
};

class RandomProgram {
 public:
  RandomProgram(const Kernels& kernels, std::uint64_t seed) : kernels_(kernels), random_(seed) {
    for (std::size_t i = 0; i < buffer_count; ++i) {
      memory_.push_back(std::make_unique<GivenBlocking>(words_in_buffer * 4));
      expected_.emplace_back(words_in_buffer, static_cast<std::uint32_t>(i));
      GIVEN(driver().cuMemsetD32(memory_[i]->address(), static_cast<unsigned>(i), words_in_buffer));
    }
    GIVEN(synchronize());
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    EXPECT_CUDA(synchronize());
    for (std::size_t i = 0; i < buffer_count; ++i) expect_contents(i);
    for (const Readback& readback : readbacks_) {
      EXPECT_TRUE(
          std::equal(readback.expected.begin(), readback.expected.end(), readback.host->data()))
          << "a copy to the host read something else than what was there";
    }
  }

 private:
  struct Readback {
    std::unique_ptr<PinnedWords> host;
    Words expected;
  };
  struct RecordedEvent {
    std::unique_ptr<GivenEvent> event;
    Clock clock{};
  };
  struct Range {
    std::size_t first, count;
  };

  std::size_t below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>{0, bound - 1}(random_);
  }
  Range some_words() {
    const std::size_t first = below(words_in_buffer);
    return {first, 1 + below(words_in_buffer - first)};
  }
  CUdeviceptr at(std::size_t buffer, std::size_t word) const {
    return memory_[buffer]->address() + word * 4;
  }
  CUstream handle(std::size_t stream) const {
    switch (kinds[stream]) {
      case StreamKind::Legacy:
        return default_stream;
      case StreamKind::PerThread:
        return per_thread_stream;
      default:
        return streams_[stream];
    }
  }

  void step() {
    const std::size_t stream = below(stream_count);
    switch (below(10)) {
      case 0:
      case 1:
        return set(stream);
      case 2:
      case 3:
        return increment(stream);
      case 4:
      case 5:
        return copy(stream);
      case 6:
        return read_back(stream);
      case 7:
        return record(stream);
      case 8:
        return wait_for_some_event(stream);
      default:
        return host_waits(stream);
    }
  }

  void set(std::size_t stream) {
    const std::size_t buffer = below(buffer_count);
    const Range range = some_words();
    const auto value = static_cast<std::uint32_t>(random_());
    before_writing(stream, buffer);
    ASSERT_CUDA(
        driver().cuMemsetD32Async(at(buffer, range.first), value, range.count, handle(stream)));
    std::fill_n(expected_[buffer].begin() + static_cast<std::ptrdiff_t>(range.first), range.count,
                value);
  }

  void increment(std::size_t stream) {
    const std::size_t buffer = below(buffer_count);
    const Range range = some_words();
    before_writing(stream, buffer);
    ASSERT_CUDA(launch(kernels_.add_one, handle(stream), at(buffer, range.first),
                       static_cast<std::uint32_t>(range.count)));
    for (std::size_t i = 0; i < range.count; ++i) ++expected_[buffer][range.first + i];
  }

  void copy(std::size_t stream) {
    const std::size_t from = below(buffer_count);
    const std::size_t to = (from + 1 + below(buffer_count - 1)) % buffer_count;
    const Range range = some_words();
    before_reading(stream, from);
    before_writing(stream, to);
    ASSERT_CUDA(driver().cuMemcpyDtoDAsync(at(to, range.first), at(from, range.first),
                                           range.count * 4, handle(stream)));
    std::copy_n(expected_[from].begin() + static_cast<std::ptrdiff_t>(range.first), range.count,
                expected_[to].begin() + static_cast<std::ptrdiff_t>(range.first));
  }

  void read_back(std::size_t stream) {
    const std::size_t buffer = below(buffer_count);
    before_reading(stream, buffer);
    Readback readback{std::make_unique<PinnedWords>(words_in_buffer), expected_[buffer]};
    ASSERT_CUDA(driver().cuMemcpyDtoHAsync(readback.host->data(), at(buffer, 0),
                                           words_in_buffer * 4, handle(stream)));
    readbacks_.push_back(std::move(readback));
  }

  void record(std::size_t stream) {
    RecordedEvent& recorded = events_[below(events_.size())];
    if (recorded.event == nullptr) recorded.event = std::make_unique<GivenEvent>();
    ASSERT_CUDA(driver().cuEventRecord(*recorded.event, handle(stream)));
    recorded.clock = order_.record(stream);
  }

  void wait_for_some_event(std::size_t stream) {
    const RecordedEvent& recorded = events_[below(events_.size())];
    if (recorded.event == nullptr) return;
    ASSERT_CUDA(driver().cuStreamWaitEvent(handle(stream), *recorded.event, 0));
    order_.wait(stream, recorded.clock);
  }

  void host_waits(std::size_t stream) {
    ASSERT_CUDA(driver().cuStreamSynchronize(handle(stream)));
    order_.host_waited_for(Clock{order_.of(stream)});
  }

  // Adds the missing waits to the stream, so that the program has no race.
  void before_reading(std::size_t stream, std::size_t buffer) {
    const Clock now = order_.step(stream);
    wait_for_writer(stream, uses_[buffer], now);
    uses_[buffer].readers[stream] = order_.of(stream)[stream];
  }

  void before_writing(std::size_t stream, std::size_t buffer) {
    const Clock now = order_.step(stream);
    Uses& uses = uses_[buffer];
    wait_for_writer(stream, uses, now);
    for (std::size_t reader = 0; reader < stream_count; ++reader) {
      if (uses.readers[reader] > now[reader]) wait_for(stream, reader);
    }
    uses = Uses{.writer_stream = static_cast<int>(stream),
                .writer_step = order_.of(stream)[stream],
                .readers = {}};
  }

  void wait_for_writer(std::size_t stream, const Uses& uses, const Clock& now) {
    if (uses.writer_stream < 0) return;
    const auto writer = static_cast<std::size_t>(uses.writer_stream);
    if (uses.writer_step > now[writer]) wait_for(stream, writer);
  }

  void wait_for(std::size_t stream, std::size_t other) {
    const GivenEvent event;
    ASSERT_CUDA(driver().cuEventRecord(event, handle(other)));
    const Clock recorded = order_.record(other);
    ASSERT_CUDA(driver().cuStreamWaitEvent(handle(stream), event, 0));
    order_.wait(stream, recorded);
  }

  void expect_contents(std::size_t buffer) const {
    Words found(words_in_buffer);
    ASSERT_CUDA(driver().cuMemcpyDtoH(found.data(), at(buffer, 0), words_in_buffer * 4));
    const auto wrong = std::mismatch(found.begin(), found.end(), expected_[buffer].begin());
    if (wrong.first == found.end()) return;
    ADD_FAILURE() << "word " << wrong.first - found.begin() << " of buffer " << buffer << " is "
                  << *wrong.first << ", expected " << *wrong.second;
  }

  const Kernels& kernels_;
  std::mt19937_64 random_;
  const GivenStream first_, second_;
  const GivenStream third_{CU_STREAM_DEFAULT};
  const std::array<CUstream, 3> streams_ = {first_, second_, third_};

  std::vector<std::unique_ptr<GivenBlocking>> memory_;
  std::vector<Words> expected_;
  std::array<Uses, buffer_count> uses_{};
  std::array<RecordedEvent, 4> events_;
  HappensBefore order_;
  std::vector<Readback> readbacks_;
};

class RandomPrograms : public DriverContract {
 protected:
  void run_programs(std::uint64_t count, int steps) {
    PRINT_SEED_ON_FAILURE();
    for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) {
      const std::uint64_t program = seed() * 1'000'003 + i;
      SCOPED_TRACE("program " + std::to_string(i) + ", its seed " + std::to_string(program));
      RandomProgram{kernels(), program}.run(steps);
    }
  }
};

TEST_F(RandomPrograms, ShortOnesMatchTheOracle) {
  run_programs(scaled(150), 12);
}

TEST_F(RandomPrograms, LongOnesMatchTheOracle) {
  run_programs(scaled(50), 120);
}

}  // namespace
}  // namespace cuvmm::test
