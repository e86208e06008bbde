// SPDX-License-Identifier: Apache-2.0
#include "observe/exposition.hpp"
#include "base/printable.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace cuvmm::observe {
namespace {

std::string_view type_name(MetricType type, MetricFormat format) {
  switch (type) {
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Counter:
      return "counter";
    case MetricType::Histogram:
      return "histogram";
    case MetricType::Info:
      return format == MetricFormat::OpenMetrics ? "info" : "gauge";
  }
  return "";
}

// Prints integers up to 2^53 exactly.
std::string print_number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::isnan(value)) return "NaN";
  std::array<char, 40> digits{};
  const bool is_whole = std::floor(value) == value && std::fabs(value) < 9e15;
  const auto end = is_whole
                       ? std::to_chars(digits.begin(), digits.end(), static_cast<long long>(value))
                       : std::to_chars(digits.begin(), digits.end(), value);
  return {digits.begin(), end.ptr};
}

std::string print_bound(std::uint64_t us) {
  std::string text = print_number(static_cast<double>(us) / 1e6);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // as OpenMetrics requires
  return text;
}

// Label values must be UTF-8, but processes may publish any bytes.
void append_escaped(std::string& text, std::string_view value) {
  for (const char letter : printable(value)) {
    if (letter == '\\' || letter == '"') text += '\\';
    text += letter;
  }
}

bool has_ending(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

}  // namespace

const char* content_type(MetricFormat format) {
  return format == MetricFormat::OpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

// Ignores quality values: a client that names OpenMetrics at all can read it.
MetricFormat format_for(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos
             ? MetricFormat::OpenMetrics
             : MetricFormat::Prometheus;
}

void Exposition::begin(const Metric& metric) {
  name_ = metric.name;
  std::string_view family = metric.name;
  if (format_ == MetricFormat::OpenMetrics) {
    for (const std::string_view ending : {"_total", "_info"}) {
      if (has_ending(family, ending)) family.remove_suffix(ending.size());
    }
  }
  const auto head = [&](const char* what, std::string_view value) {
    text_.append("# ").append(what).append(" ").append(family).append(" ").append(value) += '\n';
  };
  head("HELP", metric.help);
  head("TYPE", type_name(metric.type, format_));
  if (format_ == MetricFormat::OpenMetrics && !metric.unit.empty()) head("UNIT", metric.unit);
}

void Exposition::line(std::string_view suffix, const Labels& labels, double value) {
  text_.append(name_).append(suffix);
  char before = '{';
  for (const Label& label : labels) {
    if (label.value.empty()) continue;  // equivalent to a missing label
    text_ += before;
    before = ',';
    text_.append(label.name).append("=\"");
    append_escaped(text_, label.value);
    text_ += '"';
  }
  if (before == ',') text_ += '}';
  text_.append(" ").append(print_number(value)) += '\n';
}

void Exposition::sample(const Labels& labels, const TimeHistogram& histogram) {
  std::uint64_t up_to = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    up_to += histogram.counts()[i];
    const bool is_last = i == histogram.bounds_us().size();
    const std::string bound = is_last ? "+Inf" : print_bound(histogram.bounds_us()[i]);
    Labels with_bound = labels;
    with_bound.push_back({"le", bound});
    line("_bucket", with_bound, static_cast<double>(up_to));
  }
  line("_sum", labels, static_cast<double>(histogram.sum_us()) / 1e6);
  line("_count", labels, static_cast<double>(up_to));
}

std::string Exposition::finish() && {
  if (format_ == MetricFormat::OpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace cuvmm::observe
