// The address is the state of the page: /VIEW/ID?filter=...&columns=...

const listeners = new Set();

/** {view, id, query}: of the current address. */
export function place() {
  const [, view = "", id = ""] = location.pathname.split("/"), query = new URLSearchParams(location.search);
  try {
    return { view: view || "runs", id: decodeURIComponent(id), query };
  } catch {
    return { view: "none", id: "", query }; // not an address of UTF-8
  }
}

export function address(view, id = "", parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) query.set(key, value === true ? "1" : value);
  }
  const path = view === "runs" ? "/" : `/${view}${id ? `/${encodeURIComponent(id)}` : ""}`;
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%28", "(").replaceAll("%29", ")");
  return path + (text ? `?${text}` : "");
}

/** Shows another address. `instead`: the present one does not stay in the history, because it only leads to the other. */
export function go(url, { instead = false } = {}) {
  if (url !== location.pathname + location.search) history[instead ? "replaceState" : "pushState"](null, "", url);
  for (const listener of listeners) listener();
}

/** Changes parameters of the current address. `quiet`: without drawing the view again; `step`: a new entry of the history. */
export function change(parameters, { quiet = true, step = false } = {}) {
  const { view, id, query } = place();
  const all = { ...Object.fromEntries(query), ...parameters };
  history[step ? "pushState" : "replaceState"](null, "", address(view, id, all));
  if (!quiet) { for (const listener of listeners) listener(); }
}

export const parameter = (name, otherwise = "") => place().query.get(name) ?? otherwise;

export function onMove(listener) {
  listeners.add(listener);
}

addEventListener("popstate", () => listeners.forEach((listener) => listener()));

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (
    !link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target ||
    link.hasAttribute("download") || link.origin !== location.origin
  ) return;
  if (link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});

/** Small values that stay in this browser. */
export const kept = {
  get(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(`runner.${name}`)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`runner.${name}`, JSON.stringify(value));
    } catch { /* storage is full or turned off */ }
  },
};

// Runs that are selected for Compare, in all views.
export const selection = new Set((parameter("select") || "").split(",").filter(Boolean));

/** The colour of a run follows from its id, so that all readers and all views show the same one. */
export function colourIndex(id) {
  let hash = 0;
  for (const letter of id) hash = Math.imul(hash ^ letter.codePointAt(0), 0x9e3779b1) >>> 7 ^ hash << 3;
  return (hash >>> 0) % 8;
}

/** The colours of the runs of one chart: their own, but another one where two of eight would have the same. The oldest runs keep theirs. */
export function distinctColours(ids) {
  const indexes = new Map();
  let used = new Set();
  for (const id of [...ids].sort()) {
    if (used.size === 8) used = new Set();
    let index = colourIndex(id);
    while (used.has(index)) index = (index + 1) % 8;
    used.add(index);
    indexes.set(id, index);
  }
  return indexes;
}
