#include "strategies/contract/state_tensor.hpp"

#include <array>

#include "runner/base/error.hpp"

namespace runner {

namespace {

constexpr std::array<std::pair<const char*, torch::ScalarType>, 5> dtypes{{{"F64", torch::kFloat64},
                                                                           {"F32", torch::kFloat32},
                                                                           {"F16", torch::kFloat16},
                                                                           {"BF16", torch::kBFloat16},
                                                                           {"U8", torch::kUInt8}}};

const char* dtype_name(torch::ScalarType type) {
  for (const auto& [name, known] : dtypes)
    if (known == type) return name;
  RUNNER_CHECK(false, "dtype {} in the training state", c10::toString(type));
  return "";
}

}  // namespace

torch::ScalarType scalar_type_named(const std::string& name) {
  for (const auto& [known, type] : dtypes)
    if (name == known) return type;
  throw environment_error("the checkpoint contains dtype {}, which this program does not write", name);
}

torch::Tensor StateTensor::read(int64_t begin, int64_t count) const {
  if (!swapped) return local.narrow(0, begin, count).to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
  auto values = torch::empty({count}, torch::kFloat32);
  swapped->file->read(swapped->array, swapped->begin + begin, count, values.data_ptr());
  return values;
}

void StateTensor::write(int64_t begin, const torch::Tensor& values) const {
  torch::NoGradGuard no_grad;
  if (!swapped) {
    local.narrow(0, begin, values.numel()).copy_(values);
    return;
  }
  auto wide = values.to(torch::kFloat32).contiguous();
  swapped->file->write(swapped->array, swapped->begin + begin, wide.numel(), wide.data_ptr());
}

StateView view_of(StateTensor tensor) {
  StateView view{.name = tensor.name,
                 .dtype = dtype_name(tensor.swapped ? torch::kFloat32 : tensor.local.scalar_type()),
                 .global_shape = tensor.global_shape,
                 .slice = tensor.slice,
                 .offset = tensor.offset,
                 .count = tensor.numel(),
                 .write_begin = tensor.write_begin,
                 .write_end = tensor.write_end,
                 .optional = tensor.optional,
                 .in_file = tensor.swapped.has_value(),
                 .read = {},
                 .write = {}};
  auto shared = std::make_shared<const StateTensor>(std::move(tensor));
  view.read = [shared](int64_t begin, int64_t count) -> HostBytes {
    auto values = std::make_shared<torch::Tensor>(shared->read(begin, count));
    return {values, {static_cast<const std::byte*>(values->data_ptr()), static_cast<size_t>(values->nbytes())}};
  };
  view.write = [shared](int64_t begin, const std::string& dtype, std::span<const std::byte> values) {
    const auto type = scalar_type_named(dtype);
    const int64_t count = std::ssize(values) / static_cast<int64_t>(torch::elementSize(type));
    shared->write(begin, torch::from_blob(const_cast<std::byte*>(values.data()), {count}, type));
  };
  return view;
}

std::vector<StateView> views_of(std::vector<StateTensor> tensors) {
  std::vector<StateView> views;
  for (auto& tensor : tensors) views.push_back(view_of(std::move(tensor)));
  return views;
}

StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values) {
  int64_t n = values.numel();
  return {.name = replica_piece_name(name),
          .global_shape = {world.size - 1, n},
          .offset = (world.rank - 1) * n,
          .local = values,
          .write_end = n,
          .optional = true};  // missing in checkpoints of other strategies: replicas then start equal
}

}  // namespace runner
