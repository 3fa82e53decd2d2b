// Gloo between hosts (or on one, when asked for): the one file that needs Gloo's own headers.
#pragma once
#include <torch/torch.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace runner {

/// `one_host`: talk over 127.0.0.1 (a hostname may not resolve). Otherwise the interface that reaches `master_addr`'s network is
/// Gloo's own choice by hostname, or GLOO_SOCKET_IFNAME.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool one_host,
                                            std::chrono::milliseconds timeout);

/// Whether a collective over Gloo failed with this: a peer that is gone, or a timeout. (Other transports throw c10::DistError.)
bool is_gloo_error(const std::exception& error);

}  // namespace runner
