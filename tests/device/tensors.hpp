// Storages of tensors on the simulated device.
#pragma once
#include <c10/core/Storage.h>

#include <cstddef>

namespace runner::simulated {

/// Gives the storage `bytes` of new memory and keeps what fits of its contents.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace runner::simulated
