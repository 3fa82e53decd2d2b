#include "strategies/hivemind/ban_list.hpp"

#include <algorithm>

namespace runner::swarm {

void BanList::offend(const std::string& address, Clock::time_point now, bool shared) {
  std::lock_guard lock(mutex_);
  if (entries_.size() >= limits_.addresses && !entries_.contains(address))
    entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.until; }));
  Entry& entry = entries_[address];
  if (shared) {
    constexpr std::chrono::seconds counted{1};
    if (now - entry.second >= counted) {
      entry.second = now;
      entry.in_second = 0;
    }
    if (++entry.in_second > limits_.shared_per_second) entry.shared_until = entry.second + counted;
    return;
  }
  const int beyond = ++entry.offences - limits_.offences_before;
  if (beyond <= 0) return;
  const auto doubled = limits_.first * (int64_t{1} << std::min(beyond - 1, 20));
  entry.until = now + std::min<Milliseconds>(doubled, limits_.longest);
}

void BanList::forgive(const std::string& address) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(address);
  if (found != entries_.end()) found->second.offences = 0;
}

bool BanList::is_banned(const std::string& address, Clock::time_point now, bool shared) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(address);
  return found != entries_.end() && now < (shared ? found->second.shared_until : found->second.until);
}

size_t BanList::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace runner::swarm
