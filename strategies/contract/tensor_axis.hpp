// The ranks that share the matrices of a model, as its blocks use them: each has some of the columns of values between a
// column-parallel and a row-parallel product. Between the products all ranks have the same rows, or, with sequence parallelism,
// each has its part of them ("the stream").
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (f and g); Korthikanti et al. 2022, section 4.2.2 (g and its conjugate).
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/tensor_division.hpp"
#include "strategies/contract/weight_gradients.hpp"

namespace runner {

/// All functions are collective, in forward and in backward: every rank of the axis calls them in the same order.
class TensorAxis {
 public:
  TensorAxis(ProcessGroup group, TensorDivision division);

  const TensorDivision& division() const { return division_; }
  int rank() const { return division_.rank; }
  int size() const { return division_.ranks; }

  /// Rows of the stream on this rank for n rows of a micro-batch, and the first of them. With sequence parallelism every rank has the
  /// same number; the last ones may be padding. Values of padding are finite and have no effect.
  int64_t stream_rows(int64_t n) const;
  int64_t first_row(int64_t n) const;

  /// The stream [stream_rows(n), d] -> all rows [n, d], the input of column-parallel products. Backward adds the gradients of all ranks.
  torch::Tensor enter(const torch::Tensor& stream, int64_t n) const;
  /// The weight gradients that the backward of enter() computes while the ranks add the gradients: a product with `entered`, which is a
  /// result of enter(), can leave the gradient of its weight to it. Of several products this is only the first, whose backward is the last
  /// one. Null for later calls, for other tensors, and without gradients.
  static WeightGradients::Pointer during_sum(const torch::Tensor& entered);
  /// The products of row-parallel matrices [n, d], each of this rank's columns -> their sum over the ranks, as the stream. May
  /// overwrite `products`, which must be a temporary. `unused`: nothing reads the values, so forward does not communicate.
  torch::Tensor leave(torch::Tensor products, bool unused = false) const;
  /// Rows that all ranks have [n, d] -> this rank's rows of the stream. Backward does not add: each rank has the gradient of its rows.
  torch::Tensor own_rows(const torch::Tensor& rows) const;
  /// Columns of each rank [n, sizes[rank]] -> those of all ranks, one after another. Backward gives each rank the gradient of its columns,
  /// which all ranks must have computed.
  torch::Tensor join_columns(const torch::Tensor& columns, const std::vector<int64_t>& sizes) const;
  /// Tensors of the same shape of all ranks, [size(), ...], in the order of ranks. Without gradient.
  torch::Tensor gather(const torch::Tensor& values) const;
  /// The sum of all ranks' values, which has the same bits on all of them. It has no gradient.
  torch::Tensor sum(const torch::Tensor& values) const { return gather(values).sum(0); }

  /// For autograd functions that communicate in backward.
  void save(torch::autograd::AutogradContext* context) const;
  static TensorAxis saved(torch::autograd::AutogradContext* context);

 private:
  torch::Tensor all_rows(const torch::Tensor& stream, int64_t n) const;
  /// A collective that has started.
  struct Started {
    torch::Tensor result, read;  ///< `read`: what it reads
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor wait() {
      work->wait();
      return result;
    }
  };
  Started start_scattered_sum(const torch::Tensor& rows) const;
  torch::Tensor scattered_sum(const torch::Tensor& rows) const { return start_scattered_sum(rows).wait(); }
  Started start_sum(const torch::Tensor& values) const;
  void add_in_place(const torch::Tensor& values) const;
  torch::Tensor joined(const torch::Tensor& columns, const std::vector<int64_t>& sizes) const;
  class Enter;
  class Leave;
  class JoinColumns;

  ProcessGroup group_;
  TensorDivision division_;
};

}  // namespace runner
