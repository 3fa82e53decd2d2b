// What a model that does not predict tokens is trained for: the loss over the labels or numbers of a row, and what validation
// measures.
#pragma once
#include <cstdint>

namespace runner {

struct TaskSpec {
  enum class Loss {
    cross_entropy,  ///< one of `outputs` classes
    bce,            ///< `outputs` labels of two values each; the loss of a row is their mean, as of the next ones
    mse,
    l1,
    huber,
  };
  Loss loss = Loss::cross_entropy;
  int64_t outputs = 0;
  double label_smoothing = 0;  ///< cross_entropy, in training only (Szegedy et al. 2016, arXiv:1512.00567, section 7)
  double huber_delta = 1;

  bool classifies() const { return loss == Loss::cross_entropy; }
  bool regresses() const { return loss != Loss::cross_entropy && loss != Loss::bce; }
};

}  // namespace runner
