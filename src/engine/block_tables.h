#pragma once
// The persistent block tables: one row for each running sequence, changed only where a sequence gains blocks.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

class BlockTables {
 public:
  BlockTables(int32_t rows, int64_t blocks_per_row)
      : stride_(blocks_per_row), table_(static_cast<size_t>(rows * blocks_per_row), -1) {
    for (int32_t row = rows; row > 0; --row) free_.push_back(row - 1);
  }
  int32_t take_row() {
    const int32_t row = free_.back();
    free_.pop_back();
    return row;
  }
  void give_row(int32_t row) { free_.push_back(row); }
  int32_t* row(int32_t row) { return table_.data() + row * stride_; }
  const int32_t* data() const { return table_.data(); }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;
  std::vector<int32_t> table_;
  std::vector<int32_t> free_;
};

}  // namespace quire
