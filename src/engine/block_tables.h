#pragma once
// The persistent block tables, on the host and, as a copy kept up to date, on a device: one row for each running
// sequence, changed only where a sequence gains blocks. What lies past a row's blocks is never read, so it is never
// written either: a long row costs memory only as far as it is used.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace quire {

class BlockTables {
 public:
  BlockTables(int32_t rows, int64_t blocks_per_row)
      : stride_(blocks_per_row),
        table_(std::make_unique_for_overwrite<int32_t[]>(static_cast<size_t>(rows) *
                                                         static_cast<size_t>(blocks_per_row))) {
    free_.reserve(static_cast<size_t>(rows));
    on_device_.resize(static_cast<size_t>(rows));
    for (int32_t row = rows; row > 0; --row) free_.push_back(row - 1);
  }
  int32_t take_row() {
    const int32_t row = free_.back();
    free_.pop_back();
    on_device_[static_cast<size_t>(row)] = 0;
    return row;
  }
  void give_row(int32_t row) { free_.push_back(row); }
  int32_t* row(int32_t row) { return table_.get() + row * stride_; }
  const int32_t* row(int32_t row) const { return table_.get() + row * stride_; }
  const int32_t* data() const { return table_.get(); }
  int64_t stride() const { return stride_; }
  // How many of the row's blocks the device's copy has; 0 when the row changes hands.
  int32_t& on_device(int32_t row) { return on_device_[static_cast<size_t>(row)]; }

 private:
  int64_t stride_;
  std::unique_ptr<int32_t[]> table_;
  std::vector<int32_t> free_, on_device_;
};

}  // namespace quire
