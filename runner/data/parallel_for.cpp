#include "runner/data/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace runner {

void parallel_for(size_t count, const std::function<void(size_t)>& work, size_t wanted) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;
  std::exception_ptr failure;
  auto drain = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        next = count;
        std::lock_guard lock(mutex);
        if (i >= failed) continue;
        failed = i;
        failure = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    const size_t most = wanted > 0 ? wanted : std::thread::hardware_concurrency();
    const size_t threads = std::clamp<size_t>(most, 1, std::max<size_t>(count, 1));
    for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(drain);
    drain();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace runner
