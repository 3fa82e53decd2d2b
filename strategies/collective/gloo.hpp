// Gloo, for ranks on several hosts, or on one host if the recipe requests it. Only this file needs Gloo's own headers.
#pragma once
#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Small all_reduces run in the calling thread, along a tree (tree.hpp).
///
/// `address`: the address at which other ranks reach this host. Empty means 127.0.0.1: all ranks are on this host, and its name may
/// not resolve. GLOO_SOCKET_IFNAME overrides it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const std::string& address, std::chrono::milliseconds timeout);

/// Whether this error comes from a failed Gloo collective: a lost peer or a timeout. (Other transports throw c10::DistError.)
bool is_gloo_error(const std::exception& error);

}  // namespace runner
