// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "observe/time_histogram.hpp"

namespace cuvmm::observe {

enum class MetricFormat : std::uint8_t { Prometheus, OpenMetrics };
const char* content_type(MetricFormat format);
// The format that an Accept header asks for; Prometheus if it names none.
MetricFormat format_for(std::string_view accept);

enum class MetricType : std::uint8_t { Gauge, Counter, Histogram, Info };

// A counter's name ends in _total, an info's in _info. A unit, if any, comes right before that.
struct Metric {
  std::string_view name;
  MetricType type = MetricType::Gauge;
  std::string_view unit;    // "bytes", "seconds", "ratio", or empty
  std::string_view labels;  // for the documentation
  std::string_view help;
};

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::vector<Label>;

// Writes metrics as text: Prometheus 0.0.4 or OpenMetrics 1.0. Begin a family, then add all its
// samples.
class Exposition {
 public:
  explicit Exposition(MetricFormat format) : format_(format) {}

  void begin(const Metric& metric);
  void sample(const Labels& labels, double value) { line("", labels, value); }
  void sample(const Labels& labels, const TimeHistogram& histogram);
  std::string finish() &&;

 private:
  void line(std::string_view suffix, const Labels& labels, double value);

  const MetricFormat format_;
  std::string name_;  // of the current family's samples
  std::string text_;
};

}  // namespace cuvmm::observe
