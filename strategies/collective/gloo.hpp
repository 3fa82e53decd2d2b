// Gloo between hosts (or on one, when asked for): the one file that needs Gloo's own headers.
#pragma once
#include <torch/torch.h>

#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace runner {

/// `address`: where the other ranks reach this host; empty: over 127.0.0.1, since all are on this one (a hostname may
/// not resolve). GLOO_SOCKET_IFNAME overrides it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const std::string& address, std::chrono::milliseconds timeout);

/// Whether a collective over Gloo failed with this: a peer that is gone, or a timeout. (Other transports throw
/// c10::DistError.)
bool is_gloo_error(const std::exception& error);

}  // namespace runner
