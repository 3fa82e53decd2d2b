// Builds the bytes of small GGUF files.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace runner::testing {

class GgufBuilder {
 public:
  uint32_t version = 3;

  template <typename Number>
  static std::string number(Number value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string text(const std::string& value) { return number<uint64_t>(value.size()) + value; }

  void add(const std::string& key, uint32_t type, const std::string& bytes) {
    values_ += text(key) + number(type) + bytes;
    ++value_count_;
  }
  void add(const std::string& key, const std::string& value) { add(key, 8, text(value)); }
  void add(const std::string& key, const char* value) { add(key, std::string(value)); }
  void add(const std::string& key, uint32_t value) { add(key, 4, number(value)); }
  void add(const std::string& key, float value) { add(key, 6, number(value)); }
  void add(const std::string& key, bool value) { add(key, 7, number<uint8_t>(value)); }
  void add(const std::string& key, const std::vector<std::string>& list) {
    std::string bytes = number<uint32_t>(8) + number<uint64_t>(list.size());
    for (const auto& item : list) bytes += text(item);
    add(key, 9, bytes);
  }
  void add(const std::string& key, const std::vector<int32_t>& list) {
    std::string bytes = number<uint32_t>(5) + number<uint64_t>(list.size());
    for (const auto item : list) bytes += number(item);
    add(key, 9, bytes);
  }

  void add(const std::string& key, const std::vector<float>& list) {
    std::string bytes = number<uint32_t>(6) + number<uint64_t>(list.size());
    for (const auto item : list) bytes += number(item);
    add(key, 9, bytes);
  }

  /// `shape` has rows first. The tensor's place in the data is the next one unless `place` is given.
  void add_tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& shape, const std::string& bytes,
                  int64_t place = -1) {
    tensors_ += text(name) + number<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += number(*size);
    tensors_ += number(type) + number<uint64_t>(place < 0 ? data_.size() : static_cast<uint64_t>(place));
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
  }
  void add_floats(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
    add_tensor(name, 0, shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string bytes() const {
    auto file = "GGUF" + number(version) + number(tensor_count_) + number(value_count_) + values_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  uint64_t tensor_count_ = 0, value_count_ = 0;
  std::string values_, tensors_, data_;
};

}  // namespace runner::testing
