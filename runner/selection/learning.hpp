// Rates corrected by the measured steps of earlier runs.
//
// A predicted step time is a sum of parts. Each part has a multiplier. Before any measurement its logarithm is normal
// with mean 0; part of its variance is common to all multipliers. The fit maximizes the posterior (Gauss-Newton) given
// the logarithms of the measured times. Their errors follow Student's t distribution, so that a run on a busy machine
// has little effect (Lange, Little and Taylor 1989). The Laplace approximation gives the standard error of a
// prediction.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/step_time.hpp"

namespace runner {

/// The facts that the time of a step depends on besides its load.
struct Circumstances {
  std::string machine;  ///< host name, CPU, cores
  std::string device;   ///< "cpu", "cpu over Gloo", "cpu with XLA", "XLA, libtpu.so", or the kind of the CUDA devices
  std::string build;    ///< of runner
  std::string family, precision;
  int local_size = 1, num_nodes = 1, threads = 1;

  static Circumstances from_json(const nlohmann::json& json);
  nlohmann::json to_json() const;
};

struct PastRun {
  Circumstances where;
  StepLoad load;
  double seconds = 0;  ///< median of its steps
  double spread = 0;   ///< relative error of the median: from the quartiles of the steps and from lost CPU time
};

/// Relative standard deviation between times of one load `there` and `here`. nullopt: times `there` give no
/// information about times `here`.
std::optional<double> doubt(const Circumstances& there, const Circumstances& here);

class LearnedRates {
 public:
  /// `base`: the rates without any run. `runs` under other circumstances count less or not at all.
  LearnedRates(Rates base, const Circumstances& here, const std::vector<PastRun>& runs);

  const Rates& rates() const { return rates_; }
  size_t runs() const { return runs_; }  ///< that were used
  /// Relative standard error of the predicted time: about two of three measured times are within it.
  double error(const StepTime& time) const;

 private:
  using Matrix = std::array<StepParts, step_parts>;
  /// All runs of one load. They share the error of the model, so many of them give little more information than one.
  struct Evidence {
    StepLoad load;
    double log_seconds = 0, variance = 0;
  };
  std::vector<Evidence> gather(const Circumstances& here, const std::vector<PastRun>& runs);
  void fit(const Rates& base, const std::vector<Evidence>& evidence);

  Rates rates_;
  size_t runs_ = 0;
  Matrix covariance_ = {};  ///< of the multipliers' logarithms
};

/// Typical rates of a CPU without any measurement, as a start for learning.
Rates guessed_cpu_rates(int ranks, int threads, int cores);

}  // namespace runner
