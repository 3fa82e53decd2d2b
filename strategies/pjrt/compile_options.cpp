#include "strategies/pjrt/compile_options.hpp"

#include <cstdint>

namespace runner::pjrt {

namespace {

/// A message in protocol buffers' wire format. Each member function writes a field.
class Message {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void text(int field, const std::string& value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  /// Integers in one field, packed.
  void integers(int field, const std::vector<int64_t>& values) {
    Message list;
    for (const int64_t value : values) list.varint(static_cast<uint64_t>(value));
    text(field, list.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// OptionOverrideProto.
Message flag_value(bool value) {
  Message message;
  message.integer(2, value ? 1 : 0);
  return message;
}

/// DeviceAssignmentProto: replica i runs on device i of the client.
Message device_assignment(const CompileOptions& options) {
  auto numbers = options.devices;
  while (std::ssize(numbers) < options.replicas) numbers.push_back(std::ssize(numbers));
  numbers.resize(static_cast<size_t>(options.replicas));
  Message devices, assignment;
  devices.integers(1, numbers);
  assignment.integer(1, options.replicas);
  assignment.integer(2, 1);
  assignment.message(3, devices);
  return assignment;
}

}  // namespace

std::string to_bytes(const CompileOptions& options) {
  Message build;         // ExecutableBuildOptionsProto
  build.integer(1, -1);  // the device is decided by the assignment
  build.integer(4, options.replicas);
  build.integer(5, 1);  // partitions
  build.message(9, device_assignment(options));
  Message all;
  all.message(3, build);
  for (const auto& [name, value] : options.flags) {
    Message entry;
    entry.text(1, name);
    entry.message(2, flag_value(value));
    all.message(7, entry);
  }
  return all.bytes();
}

}  // namespace runner::pjrt
