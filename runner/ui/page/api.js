// The JSON API of the server, and its stream of changes.

let token = "";
const inAddress = /(?:^#|&)token=([0-9a-f]+)/.exec(location.hash);
try {
  if (inAddress) sessionStorage.setItem("runner.token", inAddress[1]);
  token = sessionStorage.getItem("runner.token") ?? "";
} catch {
  token = inAddress?.[1] ?? "";
}
if (inAddress) history.replaceState(null, "", location.pathname + location.search);

export const mayWrite = () => token !== "";

export class ApiError extends Error {
  constructor(message, status, answer) {
    super(message);
    Object.assign(this, { status, answer });
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api/1/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server does not answer: is `runner ui` still running?", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new ApiError(answer.error ?? `the server answered with ${response.status}`, response.status, answer);
}

function query(parameters) {
  const text = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters ?? {})) if (value !== undefined && value !== null && value !== "") text.set(key, value);
  return text.size ? `?${text}` : "";
}

export const get = async (path, parameters, signal) => (await ask(path + query(parameters), { signal })).json();
export const getText = async (path, parameters) => (await ask(path + query(parameters))).text();

export const post = async (path, body) =>
  (await ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Runner-Token": token }, body: JSON.stringify(body ?? {}) })).json();

/** Curves as arrays of doubles: 8 bytes with the length of a JSON head, the head, then x, y, smooth x, smooth y of each curve. */
export async function getCurves(parameters, signal) {
  const bytes = await (await ask(`curves${query({ ...parameters, format: "binary" })}`, { signal })).arrayBuffer();
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  let at = 8 + length;
  const take = (count) => {
    const list = new Float64Array(bytes, at, count);
    at += 8 * count;
    return list;
  };
  for (const curve of head.curves) {
    curve.x = take(curve.count);
    curve.y = take(curve.count);
    curve.smoothX = take(curve.smooth_count);
    curve.smoothY = take(curve.smooth_count);
  }
  return head;
}

const listeners = new Set();
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** One connection for the whole page. `state` is told "live", "connecting" or "gone". */
export function listen(state) {
  const tell = (change) => listeners.forEach((listener) => listener(change));
  const reload = () => tell({ reload: true, runs: [], new: [], removed: [], sweeps: true });
  let opened = false, source, later, pause = 1000;
  const connect = () => {
    source = new EventSource("/api/1/events");
    source.addEventListener("hello", () => {
      state("live");
      pause = 1000;
      if (opened) reload();
      opened = true;
    });
    source.addEventListener("reload", reload);
    source.addEventListener("change", (event) => tell(JSON.parse(event.data)));
    source.onerror = () => {
      const closed = source.readyState === EventSource.CLOSED;
      state(closed ? "gone" : "connecting");
      if (!closed) return;  // the browser tries again itself
      later = setTimeout(connect, pause);
      pause = Math.min(2 * pause, 30000);
    };
  };
  addEventListener("pagehide", () => {
    clearTimeout(later);
    source.close();
  });
  addEventListener("pageshow", (event) => event.persisted && connect());  // from the browser's memory of pages
  connect();
}
