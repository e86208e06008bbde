// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace cuvmm::view {

// How much of each cell of a grid is covered by rectangles. The cost of a rectangle does not depend
// on its size: only the differences at its corners are recorded, and summed at the end.
class Raster {
 public:
  Raster(std::size_t columns, std::size_t rows);

  // Edges in fractional cells: column 2.5 is the middle of the third.
  void add(double left, double right, double bottom, double top);

  // Coverage of each cell, row by row from the bottom, from 0 (none) to 255 (all).
  std::vector<std::uint8_t> cover() const;

  std::size_t columns() const { return columns_; }
  std::size_t rows() const { return rows_; }

 private:
  // The differences between adjacent cells' coverage by an interval; at most four are not 0.
  struct Edges {
    std::size_t at[4];
    double by[4];
    int count = 0;
    void add(std::size_t cell, double amount);
  };
  static Edges edges(double begin, double end, std::size_t cells);

  std::size_t columns_;
  std::size_t rows_;
  std::vector<double> corners_;  // (columns + 2) by (rows + 2)
};

}  // namespace cuvmm::view
