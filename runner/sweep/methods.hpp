// The table of methods: their names, options and factories.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/option.hpp"
#include "runner/sweep/method.hpp"

namespace runner::sweep {

struct MethodEntry {
  std::string name;
  std::string help;
  std::vector<Option> options = {};
  bool uses_reports = false;  ///< stops trials early, or continues them from each other
  bool needs_trials = true;   ///< does not end by itself: needs a budget
  /// `options` must be checked. Missing ones are defaults.
  std::function<std::unique_ptr<Method>(const Space&, uint64_t seed, const nlohmann::json& options)> make = {};
};

const std::vector<MethodEntry>& methods();
const MethodEntry* find_method(const std::string& name);

/// The number of trials that the method proposes without results of others; nullopt: all of them. `options` may be
/// incomplete.
std::optional<int64_t> trials_without_results(const std::string& method, const nlohmann::json& options);

/// `options` with defaults for missing ones.
std::unique_ptr<Method> make_method(const std::string& name, const Space& space, uint64_t seed,
                                    const nlohmann::json& options = nlohmann::json::object());

// The factories. Each method has one file.

/// All combinations; the last parameter varies fastest. Points that constraints reject are left out. Throws Error(usage) if a
/// range has no `points`, or if there are more than a million combinations.
std::unique_ptr<Method> make_grid(const Space& space);
/// Independent draws.
std::unique_ptr<Method> make_random(const Space& space, uint64_t seed);
/// Points of Sobol's sequence with the direction numbers of Joe and Kuo (Constructing Sobol sequences with better
/// two-dimensional projections, SIAM J. Sci. Comput. 30, 2008), scrambled as Owen does it by hashes (Burley: Practical
/// hash-based Owen scrambling, JCGT 9(4), 2020). Throws Error(usage) beyond 64 parameters.
std::unique_ptr<Method> make_sobol(const Space& space, uint64_t seed, bool scramble);

struct TpeOptions {
  int64_t n_startup_trials = 10, n_ei_candidates = 24;
  double gamma = 0.1, prior_weight = 1;
  bool multivariate = true, constant_liar = true;
};
/// The tree-structured Parzen estimator (Bergstra et al.: Algorithms for hyper-parameter optimization, NeurIPS 2011),
/// with kernels' widths, weights and the share gamma of good trials as Optuna 5 chooses them. multivariate: one
/// estimate of all parameters that are always active, instead of one each. Random draws before n_startup_trials have
/// ended. constant_liar: running trials count as bad ones, so that parallel trials explore different regions.
std::unique_ptr<Method> make_tpe(const Space& space, uint64_t seed, const TpeOptions& options);

struct AshaOptions {
  int64_t min_steps = 1, reduction_factor = 4;
  std::string sampler = "random";  ///< the method that makes the argument `sampler`
};
/// Asynchronous successive halving (Li et al.: A system for massively parallel hyperparameter tuning, MLSys 2020), in
/// the form that stops trials: at steps min_steps x factor^k a trial continues only if it is among the best 1/factor of the
/// trials that have reached this step, itself included, or if it is the best of fewer than factor. `sampler` proposes points.
std::unique_ptr<Method> make_asha(std::unique_ptr<Method> sampler, const AshaOptions& options);

struct PbtOptions {
  int64_t population = 8, interval = 0, generations = 0;
  double quantile = 0.25, resample_probability = 0.25;
  std::vector<double> factors = {0.8, 1.25};
};
/// Population based training (Jaderberg et al., arXiv 1711.09846) in generations: each trial trains one member for
/// `interval` steps; between generations a member of the worst quantile takes weights and parameters of one of the
/// best, with each parameter drawn again or multiplied by a factor. Generations wait for each other, so the outcome
/// does not depend on which member was faster.
std::unique_ptr<Method> make_pbt(const Space& space, uint64_t seed, const PbtOptions& options);

/// A random point that the constraints accept. `stream`: the stream of random numbers of the trial.
nlohmann::json random_point(const Space& space, uint64_t seed, uint64_t stream);

}  // namespace runner::sweep
