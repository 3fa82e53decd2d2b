// The simulated devices by LibTorch's names.
#pragma once
#include <c10/core/Device.h>

namespace runner::simulated {

constexpr auto device_type = c10::DeviceType::PrivateUse1;
constexpr int device_count = 4;

inline c10::Device device_at(int index) { return {device_type, static_cast<c10::DeviceIndex>(index)}; }

}  // namespace runner::simulated
