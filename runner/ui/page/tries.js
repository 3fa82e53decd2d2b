// Trying again, with a longer pause each time.

const pauses = [300, 1000, 3000];

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** What `work(number of the try)` resolves to. Errors for which `passing(error)` is true end it only after three further tries. */
export async function withTries(work, passing, signal) {
  for (let tries = 0;; ++tries) {
    try {
      return await work(tries);
    } catch (error) {
      if (tries === pauses.length || signal?.aborted || !passing(error)) throw error;
      await pause(pauses[tries] * (0.8 + 0.4 * Math.random()), signal);
    }
  }
}
