// The stream of changes. The tabs of a browser share one: over HTTP/1.1 a browser opens only six connections to a server, so a stream for
// each tab would leave none for the seventh tab. One tab holds a lock and listens to the server; it tells the others what it hears. Where
// there are no locks (pages that are neither local nor encrypted), each tab listens only while it is visible.

import { eventsAddress } from "./api.js";

const listeners = new Set();
let missed = false; // something changed while this tab was hidden

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const all = { reload: true, runs: [], new: [], removed: [], sweeps: true };

function tell(change) {
  if (document.visibilityState === "hidden") missed = true;
  else listeners.forEach((listener) => listener(change));
}
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden" || !missed) return;
  missed = false;
  tell(all);
});

/** An EventSource that is opened again when the browser gives up. `hear({change})` and `hear({state})`; returns a function that ends it. */
function connect(hear) {
  let source, later, pause = 1000;
  const open = () => {
    source = new EventSource(eventsAddress());
    source.addEventListener("hello", () => {
      pause = 1000;
      hear({ state: "live" });
    });
    source.addEventListener("reload", () => hear({ change: all }));
    source.addEventListener("change", (event) => hear({ change: JSON.parse(event.data) }));
    source.onerror = () => {
      const closed = source.readyState === EventSource.CLOSED;
      hear({ state: closed ? "gone" : "connecting" });
      if (!closed) return; // the browser tries again itself
      later = setTimeout(open, pause);
      pause = Math.min(2 * pause, 30000);
    };
  };
  open();
  return () => {
    clearTimeout(later);
    source.close();
  };
}

/** Listens from now on. `tellState` is called with "live", "connecting" or "gone". */
export function listen(tellState) {
  let state = "connecting", known = false, end = null, leave = null, channel = null;
  const hear = (message) => {
    if (message.change) tell(message.change);
    if (!message.state) return;
    if (message.state === "live") {
      if (known && state !== "live") tell(all); // what changed in between is not known
      known = true;
    }
    state = message.state;
    tellState(state);
  };
  const say = (message) => {
    hear(message);
    channel?.postMessage(message);
  };

  const follow = () => {
    channel = new BroadcastChannel("runner.changes");
    channel.onmessage = ({ data }) => {
      if (!data.asks) hear(data);
      else if (end) channel.postMessage({ state });
    };
    channel.postMessage({ asks: true });
    const leaving = new AbortController();
    navigator.locks.request("runner.changes", { signal: leaving.signal }, () =>
      new Promise((free) => {
        if (known) say({ state: "connecting" }); // the tab that listened is gone
        end = connect(say);
        leave = free;
      })).catch(() => {}); // this tab left before it had the lock
    leave = () => leaving.abort();
  };
  const alone = () => {
    if (document.visibilityState !== "hidden") end ??= connect(hear);
    document.addEventListener("visibilitychange", whenVisible);
    leave = () => document.removeEventListener("visibilitychange", whenVisible);
  };
  const whenVisible = () => {
    if (document.visibilityState === "visible") return void (end ??= connect(hear));
    end?.();
    end = null;
    state = "connecting";
  };

  const start = navigator.locks && window.BroadcastChannel ? follow : alone;
  addEventListener("pagehide", () => {
    end?.();
    end = null;
    leave?.();
    channel?.close();
    state = "connecting";
  });
  addEventListener("pageshow", (event) => event.persisted && start()); // from the browser's memory of pages
  start();
}
