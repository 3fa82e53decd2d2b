#include "runner/selection/learning.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace runner {

namespace {

/// Relative error of the model on a quiet machine, and of a median of steps.
constexpr double model_deviation = 0.04;
constexpr double least_deviation = 0.01;  // of the median of one run's steps

/// Rates with the cost of each part multiplied.
Rates multiplied(Rates rates, const StepParts& logarithms) {
  for (size_t kind = 0; kind < work_kinds; ++kind) rates.seconds[kind] *= std::exp(logarithms[kind]);
  const double sending = std::exp(logarithms[communication_part]), offload = std::exp(logarithms[offload_part]);
  rates.latency *= sending;
  rates.link_bandwidth /= sending;
  rates.network_bandwidth /= sending;
  for (auto& [name, curve] : rates.curves)
    for (auto& [bytes, seconds] : curve.points) seconds *= sending;
  rates.host_link_bandwidth /= offload;
  rates.host_update_rate /= offload;
  return rates;
}

/// The derivative of the time's logarithm by the multipliers' logarithms.
StepParts shares(const StepTime& time) {
  StepParts part = time.parts;
  for (auto& seconds : part) seconds /= time.total();
  return part;
}

double dot(const StepParts& a, const StepParts& b) {
  double sum = 0;
  for (size_t i = 0; i < step_parts; ++i) sum += a[i] * b[i];
  return sum;
}

using Matrix = std::array<StepParts, step_parts>;

/// The inverse of a symmetric positive definite matrix, by Gauss-Jordan elimination, which needs no pivoting then.
Matrix inverse(Matrix matrix) {
  Matrix result = {};
  for (size_t i = 0; i < step_parts; ++i) result[i][i] = 1;
  for (size_t pivot = 0; pivot < step_parts; ++pivot) {
    const double scale = 1 / matrix[pivot][pivot];
    for (size_t k = 0; k < step_parts; ++k) matrix[pivot][k] *= scale, result[pivot][k] *= scale;
    for (size_t row = 0; row < step_parts; ++row) {
      if (row == pivot) continue;
      const double factor = matrix[row][pivot];
      for (size_t k = 0; k < step_parts; ++k) {
        matrix[row][k] -= factor * matrix[pivot][k];
        result[row][k] -= factor * result[pivot][k];
      }
    }
  }
  return result;
}

/// Covariance of the multipliers' logarithms before any run: `deviation` is common to all, and each has the same in
/// addition.
Matrix prior_covariance(double deviation) {
  Matrix matrix;
  for (size_t i = 0; i < step_parts; ++i)
    for (size_t k = 0; k < step_parts; ++k) matrix[i][k] = deviation * deviation * (i == k ? 2 : 1);
  return matrix;
}

double square(double value) { return value * value; }

struct Measured {
  double log_seconds = 0, precision = 0;  ///< precision: 1 / variance
};

/// The median weighted by precision, so that a disturbed run has less weight than an undisturbed one.
Measured combine(std::vector<Measured> runs) {
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.log_seconds < b.log_seconds; });
  double precision = 0, below = 0;
  for (const auto& run : runs) precision += run.precision;
  for (const auto& run : runs)
    if (below += run.precision; 2 * below >= precision) return {run.log_seconds, precision};
  return {};
}

}  // namespace

Circumstances Circumstances::from_json(const nlohmann::json& json) {
  return {.machine = json.at("machine"),
          .device = json.at("device"),
          .build = json.at("build"),
          .family = json.at("family"),
          .precision = json.at("precision"),
          .local_size = json.at("local_size"),
          .num_nodes = json.at("num_nodes"),
          .threads = json.at("threads")};
}

nlohmann::json Circumstances::to_json() const {
  return {{"machine", machine},     {"device", device},         {"build", build},         {"family", family},
          {"precision", precision}, {"local_size", local_size}, {"num_nodes", num_nodes}, {"threads", threads}};
}

std::optional<double> doubt(const Circumstances& there, const Circumstances& here) {
  const bool cpu = here.device.starts_with("cpu"), same_machine = there.machine == here.machine;
  const bool kind_known = !cpu && !here.device.starts_with("XLA");  // a PJRT plug-in may be for several kinds
  if (there.device != here.device || there.precision != here.precision || (!kind_known && !same_machine))
    return std::nullopt;
  double variance = 0;
  if (!same_machine) variance += square(0.1);
  if (there.build != here.build) variance += square(0.05);
  if (there.family != here.family) variance += square(0.05);
  if (there.local_size != here.local_size || there.num_nodes != here.num_nodes) variance += square(0.05);
  if (cpu && there.threads != here.threads) variance += square(0.1);
  return std::sqrt(variance);
}

LearnedRates::LearnedRates(Rates base, const Circumstances& here, const std::vector<PastRun>& runs)
    : rates_(std::move(base)), covariance_(prior_covariance(rates_.error)) {
  auto evidence = gather(here, runs);
  if (!evidence.empty()) fit(Rates(rates_), evidence);
}

std::vector<LearnedRates::Evidence> LearnedRates::gather(const Circumstances& here, const std::vector<PastRun>& runs) {
  struct Group {
    const StepLoad* load = nullptr;
    std::vector<Measured> runs = {};
  };
  std::map<std::string, Group> groups;
  for (const auto& run : runs) {
    auto doubted = doubt(run.where, here);
    if (!doubted || run.seconds <= 0 || !step_time(run.load, rates_)) continue;
    ++runs_;
    auto& group = groups[run.load.to_json().dump()];
    group.load = &run.load;
    group.runs.push_back(
        {std::log(run.seconds), 1 / (square(least_deviation) + square(*doubted) + square(run.spread))});
  }
  std::vector<Evidence> evidence;
  for (const auto& [key, group] : groups) {
    const Measured measured = combine(group.runs);
    evidence.push_back({*group.load, measured.log_seconds, square(model_deviation) + 1 / measured.precision});
  }
  return evidence;
}

void LearnedRates::fit(const Rates& base, const std::vector<Evidence>& evidence) {
  constexpr double freedom = 4;                 // of Student's t distribution
  constexpr int rounds = 30, plain_rounds = 6;  // equal weights first, until most runs are explained
  constexpr double longest_step = 1;            // change of a logarithm in one round
  const Matrix prior = inverse(prior_covariance(base.error));
  StepParts logarithms = {};
  for (int round = 0; round < rounds; ++round) {
    const Rates rates = multiplied(base, logarithms);
    Matrix precision = prior;
    StepParts target = {};
    for (const auto& one : evidence) {
      const StepTime time = *step_time(one.load, rates);
      const StepParts share = shares(time);
      const double deviation = one.log_seconds - std::log(time.total());
      const double weight = round < plain_rounds ? 1 : (freedom + 1) / (freedom + square(deviation) / one.variance);
      for (size_t i = 0; i < step_parts; ++i) {
        target[i] += weight / one.variance * share[i] * (deviation + dot(share, logarithms));
        for (size_t k = 0; k < step_parts; ++k) precision[i][k] += weight / one.variance * share[i] * share[k];
      }
    }
    covariance_ = inverse(precision);
    double longest = 0;
    for (size_t i = 0; i < step_parts; ++i) {
      const double step = std::clamp(dot(covariance_[i], target) - logarithms[i], -longest_step, longest_step);
      logarithms[i] += step;
      longest = std::max(longest, std::abs(step));
    }
    if (round > plain_rounds && longest < 1e-4) break;
  }
  rates_ = multiplied(base, logarithms);
}

double LearnedRates::error(const StepTime& time) const {
  const StepParts share = shares(time);
  double variance = square(model_deviation);
  for (size_t i = 0; i < step_parts; ++i) variance += share[i] * dot(covariance_[i], share);
  return std::sqrt(variance);
}

Rates guessed_cpu_rates(int ranks, int threads, int cores) {
  // For a core at about 3 GHz with AVX2. Real cores differ by a factor of two.
  Rates rates;
  auto set = [&](Work work, double value) { rates.seconds[static_cast<size_t>(work)] = value; };
  const double flop = 2e-11 / threads, byte = 2e-10 / threads;
  set(Work::product_flops, flop);
  set(Work::thin_product_flops, 50 * flop);
  set(Work::attention_flops, 2 * flop);
  set(Work::activation_bytes, byte);
  set(Work::logits, 20 * byte);
  set(Work::block_passes, 1e-4);
  set(Work::recomputations, 1e-4);
  set(Work::updates, 10 * byte);
  set(Work::copied_bytes, byte);
  set(Work::collective_calls, 3e-5);
  set(Work::collective_bytes, 2 * byte);
  set(Work::steps, 1e-3);
  for (auto& seconds : rates.seconds) seconds *= crowding(ranks, threads, cores);
  rates.latency = 2e-5;
  rates.link_bandwidth = 2e9;
  rates.error = 0.7;
  rates.source = "a guess at this CPU";
  return rates;
}

}  // namespace runner
