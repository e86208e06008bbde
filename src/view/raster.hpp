// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace cuvmm::view {

// How much of each cell of a grid is covered by rectangles. A rectangle costs the same however
// large it is: only the corners of its cover are noted, and summed up at the end.
class Raster {
 public:
  Raster(std::size_t columns, std::size_t rows);

  // Edges in cells, fractions count: column 2.5 is the middle of the third.
  void add(double left, double right, double bottom, double top);

  // Of each cell, row by row from the bottom: 0 nothing, 255 all of it.
  std::vector<std::uint8_t> cover() const;

  std::size_t columns() const { return columns_; }
  std::size_t rows() const { return rows_; }

 private:
  // The first difference of a line's cover: at most four cells in which it is not 0.
  struct Edges {
    std::size_t at[4];
    double by[4];
    int count = 0;
    void add(std::size_t cell, double amount);
  };
  static Edges edges(double begin, double end, std::size_t cells);

  std::size_t columns_;
  std::size_t rows_;
  std::vector<double> corners_;  // one column and row more than there are cells
};

}  // namespace cuvmm::view
