// `run` of a sweep in Lua as a method: a coroutine that proposes trials and is told their results.
#pragma once
#include <memory>

#include "runner/sweep/method.hpp"

namespace runner::sweep {

struct SweepFile;

/// What `run` gets is an object with
///   sweep:try{["optimizer.lr"] = 1e-3}  starts a trial, waits for its end and returns its result
///   sweep:start{...}                    starts a trial and returns a handle of it, without waiting
///   sweep:wait(), sweep:wait(handle)    the result of the trial that ends next, or of this one; nil: none is running
///   sweep:next_event()                  {kind = "report", trial, step, value}, or a result with kind = "end"; or nil
///   sweep:trial(number)                 the handle of a trial
///   sweep:sample()                      a random point of the file's `space`
///   sweep:best()                        the best result so far, or nil
///   sweep.seed, .metric, .goal, .running (trials that were started and whose end it was not told)
/// A result is {trial, status, value, step, reason, parameters}: status finished, pruned or failed; value nil where
/// there is none; reason a failure's class. A handle has number, parameters, status, value, reason, reports() = {{step,
/// value}, ...} and stop(): the trial ends as pruned at its next report. Reports, and stop(), are there with
/// `reports = true`.
///
/// A trial's reports come with rising steps, before its end, each once. One that was interrupted and goes on from a
/// checkpoint before what it reported, or from the beginning, reports again from the first new step on. A failed one
/// that is tried again reports nothing: of it `run` hears the end alone, and finds the newest one from then on.
///
/// Trials begin in the order in which they are started. `run` goes on as soon as what it waits for is told, so what it
/// proposes is a function of the seed (that of math.random, too) and of what was told, in its order. What goes wrong in
/// it is kept, and thrown by propose() and check(): RecipeError at the script's line, with the calls that led there.
std::unique_ptr<Method> make_lua_method(const SweepFile& sweep);

}  // namespace runner::sweep
