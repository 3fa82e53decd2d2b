#include "strategies/pjrt/compile_options.hpp"

#include <bit>

namespace runner::pjrt {

namespace {

/// A message in protocol buffers' wire format. Each member function writes a field.
class Message {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void number(int field, double value) {
    key(field, 1);
    for (uint64_t bits = std::bit_cast<uint64_t>(value), i = 0; i < 8; ++i, bits >>= 8)
      bytes_ += static_cast<char>(bits);
  }
  void text(int field, const std::string& value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  /// Integers in one field, packed.
  void integers(int field, int count) {
    Message list;
    for (int i = 0; i < count; ++i) list.varint(static_cast<uint64_t>(i));
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

/// OptionOverrideProto: a string, a bool, an integer or a number.
Message flag_value(const std::variant<bool, int64_t, double, std::string>& value) {
  Message message;
  if (const auto* text = std::get_if<std::string>(&value)) message.text(1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) message.integer(2, *flag ? 1 : 0);
  if (const auto* integer = std::get_if<int64_t>(&value)) message.integer(3, *integer);
  if (const auto* number = std::get_if<double>(&value)) message.number(4, *number);
  return message;
}

/// DeviceAssignmentProto: replica i runs on device i.
Message device_assignment(int replicas) {
  Message devices, assignment;
  devices.integers(1, replicas);
  assignment.integer(1, replicas);
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
  build.message(9, device_assignment(options.replicas));
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
