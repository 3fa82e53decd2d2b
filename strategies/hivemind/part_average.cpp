#include "strategies/hivemind/part_average.hpp"

#include <algorithm>

#include "strategies/hivemind/bytes.hpp"

namespace runner::swarm {

std::shared_ptr<const std::vector<float>> PartAverage::contribute(size_t member, size_t piece,
                                                                  std::vector<float> values, double weight,
                                                                  Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (excluded_.contains(member)) throw ConnectionError("this member is excluded from the average");
  if (next_.at(member)++ != piece) throw ProtocolError("a member sends a piece out of order");
  auto& entry = pieces_[piece];
  if (!entry) {
    entry = std::make_shared<Piece>();
    entry->first = Clock::now();
  }
  const auto own = entry;
  if (!own->arrived.empty() && own->arrived.begin()->second.values.size() != values.size())
    throw ProtocolError("a piece has another size");
  own->arrived[member] = {std::move(values), weight};
  while (!own->average) {
    if (is_complete(*own)) {
      complete(*own);
      pieces_.erase(piece);
      changed_.notify_all();
      break;
    }
    if (changed_.wait_until(lock, std::min(deadline, own->first + patience_)) == std::cv_status::no_timeout) continue;
    if (own->average) break;
    if (Clock::now() >= deadline) throw ConnectionError("the time of the averaging is over");
    for (size_t other = 0; other < members_; ++other)
      if (!own->arrived.contains(other)) excluded_.insert(other);
  }
  return own->average;
}

void PartAverage::exclude(size_t member) {
  std::lock_guard lock(mutex_);
  excluded_.insert(member);
  changed_.notify_all();
}

std::set<size_t> PartAverage::excluded() const {
  std::lock_guard lock(mutex_);
  return excluded_;
}

bool PartAverage::is_complete(const Piece& piece) const {
  for (size_t member = 0; member < members_; ++member)
    if (!piece.arrived.contains(member) && !excluded_.contains(member)) return false;
  return true;
}

/// Without any weight the average is that of equal weights.
void PartAverage::complete(Piece& piece) {
  double total = 0;
  for (const auto& [member, one] : piece.arrived) total += one.weight;
  std::vector<double> sums(piece.arrived.begin()->second.values.size());
  for (const auto& [member, one] : piece.arrived) {
    const double weight = total > 0 ? one.weight / total : 1.0 / static_cast<double>(piece.arrived.size());
    if (weight == 0) continue;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * static_cast<double>(one.values[i]);
  }
  auto average = std::make_shared<std::vector<float>>(sums.size());
  std::ranges::transform(sums, average->begin(), [](double sum) { return static_cast<float>(sum); });
  piece.average = std::move(average);
  piece.arrived.clear();
}

}  // namespace runner::swarm
