// The JSON API of the server.
import { withTries } from "./tries.js";

// The token of the address that `runner ui` printed is kept for all tabs of this browser that show this server.
const tokenInAddress = () => /(?:^#|&)token=([0-9a-f]+)/.exec(location.hash);
const keptToken = () => {
  try {
    return localStorage.getItem("runner.token") ?? "";
  } catch {
    return ""; // storage is turned off
  }
};
const inAddress = tokenInAddress();
let token = inAddress?.[1] ?? keptToken();
try {
  if (inAddress) localStorage.setItem("runner.token", token);
} catch { /* storage is turned off */ }
if (inAddress) history.replaceState(null, "", location.pathname + location.search);
// An address that differs from that of this tab only behind # does not load the page anew.
addEventListener("hashchange", () => tokenInAddress() && location.reload());

let writes = token !== "", reads = true;
export const mayWrite = () => writes, mayRead = () => reads;
/** The address of the stream of changes: the headers of an EventSource cannot be set. */
export const eventsAddress = () => "/api/1/events" + (token ? `?token=${token}` : "");

/** Asks what the token permits. One of an earlier server is forgotten; another tab may have a new one. Whether this changes anything. */
export async function forgetOldToken() {
  const before = [writes, reads].join();
  token ||= keptToken();
  const { may_write, may_read, token_valid } = await (await ask("")).json();
  [writes, reads] = [may_write, may_read];
  if (token && !token_valid) {
    if (keptToken() === token) localStorage.removeItem("runner.token");
    token = keptToken();
    if (token) await forgetOldToken();
  }
  return before !== [writes, reads].join();
}

export class ApiError extends Error {
  constructor(message, status, answer) {
    super(message);
    Object.assign(this, { status, answer });
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api/1/${path}`, { ...options, headers: { "X-Runner-Token": token, ...options?.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tellReachable(false);
    throw new ApiError("the server does not answer: is `runner ui` still running?", 0);
  }
  tellReachable(true);
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const error = new ApiError(answer.error ?? `the server answered with ${response.status}`, response.status, answer);
  error.passing = response.headers.has("Retry-After");
  throw error;
}

let tellReachable = () => {};
/** `listener(true or false)` is told with each request whether the server answered. */
export function onReachable(listener) {
  tellReachable = listener;
}

/** Reading changes nothing, so it is tried again while the server starts anew or has too much to do. */
const read = (path, signal) => withTries(() => ask(path, { signal }), (error) => error.status === 0 || error.passing, signal);

function query(parameters) {
  const text = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters ?? {})) {
    if (value !== undefined && value !== null && value !== "") text.set(key, value);
  }
  return text.size ? `?${String(text).replaceAll("%2C", ",")}` : ""; // an address of many ids has a greatest length
}

export const get = async (path, parameters, signal) => (await read(path + query(parameters), signal)).json();
export const getBlob = async (path, parameters) => (await read(path + query(parameters))).blob();
export const getText = async (path, parameters) => (await read(path + query(parameters))).text();

export const post = async (path, body) =>
  (await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  })).json();

/** Curves as arrays of doubles: 8 bytes with the length of a JSON head, the head, then x, y, smooth x, smooth y of each curve. */
export async function getCurves(parameters, signal) {
  const bytes = await (await read(`curves${query({ ...parameters, format: "binary" })}`, signal)).arrayBuffer();
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

/** Whether the address had a token that the server refused. Known after forgetOldToken(). */
export const tokenRefused = () => inAddress !== null && token === "";
