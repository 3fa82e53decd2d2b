#include "strategies/contract/piece_norms.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "runner/base/error.hpp"
#include "strategies/contract/host_update.hpp"

namespace runner {

namespace {

constexpr int64_t copied_elements = tensor_update_elements(/*on_host=*/true);  // as in an update

/// The CPU's kernel copies a 16-bit tensor to float32, so it is given one part after another.
std::vector<torch::Tensor> parts_of(const torch::Tensor& tensor) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return {};
  return tensor.element_size() < 4 ? flat.split(copied_elements) : std::vector{flat};
}

}  // namespace

torch::Tensor piece_norms(const std::vector<torch::Tensor>& tensors) {
  RUNNER_CHECK(!tensors.empty());
  const auto wide = wide_dtype(tensors.front());
  // On CUDA one tensor is one piece: its kernels add in a tree, and one launch is enough for all tensors.
  if (tensors.front().is_cuda()) return at::stack(at::_foreach_norm(tensors, 2, wide));
  constexpr int64_t piece = 4096;
  std::vector<torch::Tensor> norms;
  const auto add = [&](const torch::Tensor& rows) {
    norms.push_back(at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, /*keepdim=*/false, wide));
  };
  for (const auto& tensor : tensors)
    for (const auto& part : parts_of(tensor)) {
      const int64_t rows = part.numel() / piece, rest = part.numel() % piece;
      if (rows > 0) add(part.narrow(0, 0, rows * piece).view({rows, piece}));
      if (rest > 0) add(part.narrow(0, rows * piece, rest).view({1, rest}));
    }
  return norms.empty() ? torch::zeros({0}, tensors.front().options().dtype(wide)) : at::cat(norms);
}

}  // namespace runner
