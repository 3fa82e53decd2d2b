#include "strategies/executor/shard.hpp"

namespace runner {

torch::Tensor without_memory(int64_t elements, const torch::TensorOptions& options) {
  auto tensor = torch::empty({0}, options);
  auto bytes = static_cast<size_t>(elements) * tensor.element_size();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, tensor.device()),
                       /*allocator=*/nullptr, /*resizable=*/false);
  return tensor.set_(storage, 0, {elements});
}

void empty_storage(const torch::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

void hand_over(const torch::Tensor& from, const torch::Tensor& to) {
  auto* source = from.storage().unsafeGetStorageImpl();
  auto* target = to.storage().unsafeGetStorageImpl();
  target->set_nbytes(source->nbytes());
  target->set_data_ptr_noswap(source->set_data_ptr(at::DataPtr(nullptr, from.device())));
  source->set_nbytes(0);
}

}  // namespace runner
