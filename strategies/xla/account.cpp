#include "strategies/xla/account.hpp"

#include <algorithm>

#include "strategies/contract/dtype.hpp"
#include "strategies/xla/devices.hpp"
#include "strategies/xla/program_writer.hpp"

namespace runner {

namespace {

using xla::ProgramForm;

/// The programs of a step, in the order in which they run.
std::vector<ProgramForm> forms_of(const Job& job, const Model& model) {
  std::vector<pjrt::Type> fields;
  for (const auto& field : model.spec.batch) {
    std::vector<int64_t> shape{job.micro_batch_size};
    shape.insert(shape.end(), field.row.begin(), field.row.end());
    fields.push_back({xla::element_type(scalar_type(field.type)), shape});
  }
  std::vector<ProgramForm> forms;
  const int64_t count = std::min<int64_t>(job.accumulation, 3);  // all between the first and the last one are alike
  for (int64_t m = 0; m < count; ++m) {
    forms.push_back(ProgramForm::of_micro_batch(/*first=*/m == 0, /*last=*/m + 1 == count, /*updates=*/true));
    forms.back().fields = fields;
  }
  return forms;
}

/// Bytes of the optimizer state on each device.
int64_t state_bytes(const xla::Arrays& arrays) {
  int64_t elements = 0;
  for (const size_t slot : arrays.trained()) elements += arrays.parameters[slot].type(arrays.master).numel();
  return elements * arrays.states * pjrt::bytes_of(arrays.master);
}

}  // namespace

StepAccount account_of_step(Model& model, const Job& job, const ParallelPlan& plan, const OptimizerConfig& optimizer,
                            std::optional<double> clip_norm, std::optional<double> clip_value) {
  const auto arrays = xla::arrays_of(model.spec, plan, optimizer);
  xla::ProgramWriter writer(model, job, plan, arrays, optimizer, {clip_norm, clip_value});
  xla::Devices devices({.plugin = plan.compiled->plugin, .store = plan.compiled->store}, arrays.replicas);
  StepAccount most;
  for (const auto& form : forms_of(job, model)) {
    const auto memory = devices.memory_of(form.key(), [&] { return writer.write(form).text; });
    // The optimizer state is no argument of a program without an update, but it is on the device.
    const int64_t bytes = memory.bytes() + (form.takes_states() ? 0 : state_bytes(arrays));
    if (bytes > most.bytes) most = {.program = form.name(), .bytes = bytes, .temporary = memory.temporary};
  }
  return most;
}

}  // namespace runner
