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
  std::vector<std::string> matches;                                        ///< words in the driver's name of the device
  int major = 0, minor = 0;                                                ///< compute capability
  int64_t memory_bytes = 0;                                                ///< what the driver reports as total
  std::map<std::string, double> flops;                                     ///< dense peak a second: fp32, fp16, bf16
  double memory_bandwidth = 0, link_bandwidth = 0, network_bandwidth = 0;  ///< bytes a second
  std::string source;

  /// 0 if the device has no matrix products in this type, and for fp64, which is not in the table.
  double peak_flops(DType dtype) const;
  bool bf16() const { return flops.contains("bf16"); }
  /// CUDA 13 needs compute capability 7.5.
  bool supported() const { return major * 10 + minor >= 75; }
};

const std::vector<DeviceKind>& device_kinds();
/// By its name in the table; nullptr if there is none.
const DeviceKind* find_device_kind(const std::string& name);
/// By the driver's name, e.g. "NVIDIA A100-SXM4-80GB"; nullptr if it is not in the table.
const DeviceKind* kind_of_device(const std::string& driver_name);

/// Bytes that cuBLAS and cuBLASLt keep on a device of this kind (nullptr: not known) for a training. LibTorch gives each pair of a
/// handle and a stream a workspace: 32 MiB from compute capability 9.0 on, else 8.1 MiB. The number of pairs, four, is taken from
/// measurements on an H200: five trainings needed 128.7 to 129.9 MiB more than the rest of their plans, two with offload 100 and 113 MiB.
/// No older GPU was measured.
int64_t workspace_bytes(const DeviceKind* kind);

}  // namespace runner
