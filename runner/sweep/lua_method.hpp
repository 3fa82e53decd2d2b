// The function `run` of a sweep in Lua as a method: a coroutine that proposes trials and receives their results.
#pragma once
#include <memory>

#include "runner/sweep/method.hpp"

namespace runner::sweep {

struct SweepFile;

/// `run` receives an object with
///   sweep:try{["optimizer.lr"] = 1e-3}  starts a trial, waits for its end and returns its result
///   sweep:start{...}                    starts a trial and returns a handle of it, without waiting
///   sweep:wait(), sweep:wait(handle)    the result of the trial that ends next, or of this trial; nil if none is running
///   sweep:next_event()                  {kind = "report", trial, step, value}, or a result with kind = "end"; or nil
///   sweep:trial(number)                 the handle of a trial
///   sweep:sample()                      a random point of the file's `space`
///   sweep:best()                        the best result so far, or nil
///   sweep.seed, .metric, .goal, .running (started trials whose end `run` has not received)
/// A result is {trial, status, value, step, reason, parameters}: status is finished, pruned or failed; value is nil if there is
/// none; reason is the class of a failure. A handle has number, parameters, status, value, reason, reports() = {{step, value},
/// ...} and stop(), after which the trial ends as pruned at its next report. Reports and stop() need `reports = true`.
///
/// A trial reports each step once, in rising order, before its end. An interrupted trial that continues from a checkpoint before
/// its last report, or from the beginning, reports from the first new step on. A failed trial that is tried again reports
/// nothing: `run` receives only its end, and later sees the newest result.
///
/// Trials begin in the order in which they are started. `run` continues as soon as the result that it waits for arrives. So its
/// proposals depend only on the seed (also that of math.random) and on the results, in their order. Errors in `run` are stored,
/// and propose() and check() throw them: RecipeError at the script's line, with the calls that led there.
std::unique_ptr<Method> make_lua_method(const SweepFile& sweep);

}  // namespace runner::sweep
