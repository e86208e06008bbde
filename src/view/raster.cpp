// SPDX-License-Identifier: Apache-2.0
#include "view/raster.hpp"

#include <algorithm>
#include <cmath>

namespace cuvmm::view {

Raster::Raster(std::size_t columns, std::size_t rows)
    : columns_(columns), rows_(rows), corners_((columns + 2) * (rows + 2), 0.0) {}

void Raster::Edges::add(std::size_t cell, double amount) {
  at[count] = cell;
  by[count++] = amount;
}

// An interval from 1.25 to 3.5 covers three quarters of cell 1, all of 2 and half of 3.
Raster::Edges Raster::edges(double begin, double end, std::size_t cells) {
  const auto limit = static_cast<double>(cells);
  begin = std::clamp(begin, 0.0, limit);
  end = std::clamp(end, 0.0, limit);
  Edges edges;
  if (!(begin < end)) return edges;
  const auto first = static_cast<std::size_t>(begin);
  const auto last = static_cast<std::size_t>(end);
  const double before = begin - static_cast<double>(first);
  const double after = end - static_cast<double>(last);
  edges.add(first, 1 - before);
  edges.add(first + 1, before);
  edges.add(last, after - 1);
  edges.add(last + 1, -after);
  return edges;
}

void Raster::add(double left, double right, double bottom, double top) {
  const Edges across = edges(left, right, columns_);
  const Edges up = edges(bottom, top, rows_);
  for (int i = 0; i < up.count; ++i) {
    double* row = &corners_[up.at[i] * (columns_ + 2)];
    for (int j = 0; j < across.count; ++j) row[across.at[j]] += up.by[i] * across.by[j];
  }
}

std::vector<std::uint8_t> Raster::cover() const {
  std::vector<std::uint8_t> cells(columns_ * rows_);
  std::vector<double> column_sums(columns_, 0.0);
  for (std::size_t row = 0; row < rows_; ++row) {
    double sum = 0;
    for (std::size_t column = 0; column < columns_; ++column) {
      sum += corners_[row * (columns_ + 2) + column];
      column_sums[column] += sum;
      const double covered = std::clamp(column_sums[column], 0.0, 1.0);
      // Even tiny coverage stays visible.
      const double shown = covered < 1e-6 ? 0 : std::max(1.0, std::round(covered * 255));
      cells[row * columns_ + column] = static_cast<std::uint8_t>(shown);
    }
  }
  return cells;
}

}  // namespace cuvmm::view
