#include "strategies/contract/control_words.hpp"

#include <array>

#include "runner/base/error.hpp"
#include "strategies/collective/divergence.hpp"

namespace runner {

ControlSums sum_control_words(const World& world, double loss, double squared_norm, uint32_t votes) {
  RUNNER_CHECK(votes >> vote_bits == 0, "votes have {} bits, not those of {}", vote_bits, votes);
  if (world.size == 1) return {.loss = loss, .squared_norm = squared_norm, .votes = votes};
  struct Words {
    double loss, squared_norm;
    std::array<double, vote_bits> votes;  ///< ranks that set a bit
    AgreementWords agreement;
  } words{.loss = loss, .squared_norm = squared_norm, .votes = {}, .agreement = agreement_words(*world.trace)};
  for (int bit = 0; bit < vote_bits; ++bit) words.votes[static_cast<size_t>(bit)] = votes >> bit & 1;
  std::vector<at::Tensor> sums{torch::from_blob(&words, {sizeof words / sizeof(double)}, torch::kFloat64)};
  world.control->allreduce(sums, {c10d::ReduceOp::SUM})->wait();
  require_agreement(world, words.agreement);
  ControlSums result{.loss = words.loss, .squared_norm = words.squared_norm};
  for (int bit = 0; bit < vote_bits; ++bit)
    if (words.votes[static_cast<size_t>(bit)] > 0) result.votes |= 1u << bit;
  return result;
}

}  // namespace runner
