// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "observe/time_histogram.hpp"

namespace cuvmm::observe {

enum class MetricFormat : std::uint8_t { Prometheus, OpenMetrics };
const char* content_type(MetricFormat format);
// What an Accept header asks for; the older format where it does not say.
MetricFormat format_for(std::string_view accept);

enum class MetricType : std::uint8_t { Gauge, Counter, Histogram, Info };

// A counter's name ends in _total, an info's in _info, and a unit is the end of what is before.
struct Metric {
  std::string_view name;
  MetricType type = MetricType::Gauge;
  std::string_view unit;    // "bytes", "seconds", "ratio", or empty
  std::string_view labels;  // for people
  std::string_view help;
};

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::vector<Label>;

// Metrics as text: Prometheus 0.0.4 or OpenMetrics 1.0. All samples of a family follow its head.
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
  std::string name_;  // of the family that has begun, as its samples have it
  std::string text_;
};

}  // namespace cuvmm::observe
