// Accelerators by name, with their memory and peak rates: schemas/devices.toml.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strategies/contract/precision.hpp"

namespace runner {

struct DeviceKind {
  std::string name;                                                        ///< "h100-80g"
  std::vector<std::string> matches;                                        ///< words of the driver's name
  int major = 0, minor = 0;                                                ///< compute capability
  int64_t memory_bytes = 0;                                                ///< what the driver reports as total
  std::map<std::string, double> flops;                                     ///< dense peak a second: fp32, fp16, bf16
  double memory_bandwidth = 0, link_bandwidth = 0, network_bandwidth = 0;  ///< bytes a second
  std::string source;

  /// 0 when the device has no such products. fp64 is not in the table: 0.
  double peak_flops(DType dtype) const;
  bool bf16() const { return flops.contains("bf16"); }
  /// CUDA 13, which this runner is built for, begins at compute capability 7.5.
  bool supported() const { return major * 10 + minor >= 75; }
};

const std::vector<DeviceKind>& device_kinds();
/// By our name; nullptr when there is none.
const DeviceKind* find_device_kind(const std::string& name);
/// By the driver's name, e.g. "NVIDIA A100-SXM4-80GB"; nullptr when it is not in the table.
const DeviceKind* kind_of_device(const std::string& driver_name);

}  // namespace runner
