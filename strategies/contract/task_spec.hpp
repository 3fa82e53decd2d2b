// The task of a model that does not predict tokens: the loss over the labels or numbers of a row.
#pragma once
#include <cstdint>

namespace runner {

struct TaskSpec {
  /// The loss of a row is the mean over its outputs, except that of cross_entropy.
  enum class Loss {
    cross_entropy,  ///< one of `outputs` classes
    bce,            ///< `outputs` labels of two values each
    mse,            ///< `outputs` numbers, as for the losses below
    l1,
    huber,
  };
  Loss loss = Loss::cross_entropy;
  int64_t outputs = 0;
  double label_smoothing = 0;  ///< cross_entropy, in training only (Szegedy et al. 2016, arXiv:1512.00567, section 7)
  double huber_delta = 1;
  /// cross_entropy, in training only: a row has two classes with shares (partner_labels_field() of row_batch.hpp).
  bool mixes_labels = false;

  bool classifies() const { return loss == Loss::cross_entropy; }
  bool regresses() const { return loss != Loss::cross_entropy && loss != Loss::bce; }
};

}  // namespace runner
