// The shell: which view is shown, the filter field, live updates, theme, keys.
import { $, $$, askText, h, popover, replace, toast } from "./dom.js";
import { forgetOldToken, mayRead, mayWrite, onReachable, tokenRefused } from "./api.js";
import { listen, onChange } from "./stream.js";
import { withTries } from "./tries.js";
import { address, change, go, kept, onMove, parameter, place } from "./state.js";
import { filterField } from "./filter.js";
import { closeDrawer } from "./drawer.js";
import { termOf, withoutTerm } from "./words.js";
import { showRuns } from "./runs.js";
import { loadECharts } from "./echarts.js";

/**
 * A view of a module of its own. A browser remembers that a module could not be loaded, so each further try has another address. If a
 * module is missing that this one needs, or if the server is of another version now, only loading the whole page anew helps.
 */
function lazy(module, name) {
  let failed = 0, loaded;
  return async () => {
    loaded ??= await withTries(() => import(`./${module}.js${failed ? `?try=${failed}` : ""}`), () => ++failed > 0).catch(() => {
      throw Object.assign(new Error("This part of the page could not be loaded: is `runner ui` still running?"), {
        status: 0,
        reload: true,
      });
    });
    return loaded[name];
  };
}

const views = {
  runs: { title: "Runs", load: async () => showRuns, filter: true },
  compare: { title: "Compare", load: lazy("compare", "showCompare"), filter: true },
  run: { title: "Run", load: lazy("run", "showRun") },
  plan: { title: "Plan", load: lazy("plan", "showPlan") },
  sweep: { title: "Sweep", load: lazy("sweep", "showSweep") },
};

const main = $("#content");
let current = null;
let failed = false; // the view is not there, because the server did not answer
let shown = 0;

const field = filterField(parameter("filter"), (filter) => context.setFilter(filter));
const tools = h("div.bar-tools");
$("#bar").append(field.box, tools);

const ranges = [["", "All time"], ["1h", "Last hour"], ["1d", "Last day"], ["7d", "Last 7 days"], ["30d", "Last 30 days"]];
const range = h("select", {
  "aria-label": "Time range",
  onchange: () => {
    const rest = withoutTerm(parameter("filter"), "since");
    context.setFilter(`${rest} ${range.value ? `since:${range.value}` : ""}`.trim());
  },
}, ranges.map(([value, text]) => h("option", { value }, text)));

export const context = {
  filter: () => parameter("filter"),
  setFilter(filter) {
    const { view } = place();
    if (view === "runs" || view === "compare") change({ filter, runs: "" }, { quiet: false, step: true });
    else go(address("runs", "", { filter }));
  },
  filterError: (error) => field.fail(error),
  tools,
};

async function draw() {
  const { view } = place(), known = views[view];
  const mine = ++shown;
  failed = false;
  current?.dispose?.();
  current = null;
  closeDrawer();
  $$("#views a").forEach((link) => link.toggleAttribute("aria-current", link.dataset.view === view));
  $$("#views a[aria-current]").forEach((link) => link.setAttribute("aria-current", "page"));
  field.set(parameter("filter"));
  field.fail(null);
  const since = termOf(parameter("filter"), "since") ?? "";
  range.value = ranges.some(([value]) => value === since) ? since : "";
  replace(tools, known?.filter ? h("label.field.hide-narrow", range) : null);
  document.title = `${known?.title ?? "Not found"} · runner`;
  main.scrollTop = 0;
  // Each view has a box of its own, so that one that is left before its data arrives draws nothing into the next. What was there stays
  // until then.
  const box = h("div");
  box.append(...(main.firstElementChild?.childNodes ?? []));
  replace(main, box);
  if (!known) {
    replace(box, h("div.empty", h("p.empty-title", "There is no such page"), h("a", { href: "/" }, "All runs")));
    return;
  }
  try {
    const show = await known.load();
    if (mine !== shown) return;
    const made = await show(box, context);
    if (mine !== shown) made?.dispose?.();
    else current = made;
  } catch (error) {
    if (mine === shown) failed = error.status === 0;
    if (mine === shown) {
      replace(
        box,
        h(
          "div.empty",
          h("p.empty-title", "This view could not be shown"),
          h("p", error.message),
          h("button.plain", { type: "button", onclick: () => (error.reload ? location.reload() : draw()) }, "Try again"),
        ),
      );
    }
    if (!(error.status >= 0)) throw error;
  }
}
onMove(draw);

// Saved views: names of addresses, each with the filter, columns, axes and tab of its view.
// Earlier pages kept only filters.
const saved = () =>
  kept.get("views", null) ?? kept.get("filters", []).map((name) => ({ name, url: address("runs", "", { filter: name }) }));
function saveViews(list) {
  kept.set("views", list);
  drawSaved();
}
function drawSaved() {
  replace(
    $("#saved"),
    saved().map(({ name, url }) =>
      h(
        "li",
        h("a", { href: url, title: name }, name),
        h("button", {
          type: "button",
          "aria-label": `Remove ${name}`,
          onclick: () => saveViews(saved().filter((one) => one.name !== name)),
        }, "×"),
      )
    ),
  );
}
$("#save-view").addEventListener("click", (event) =>
  askText(event.currentTarget, "Name of this view", (name) => {
    saveViews([...saved().filter((one) => one.name !== name), { name, url: location.pathname + location.search }]);
  }, parameter("filter") || document.title.replace(/ · runner$/, "")));

// A run that fails is told in every view.
const training = new Set();
onChange((changes) => {
  for (const { id, status } of changes.runs) {
    if (status === "running") training.add(id);
    else if (training.delete(id) && ["failed", "lost"].includes(status)) {
      toast(h("a", { href: address("run", id) }, `Run ${id} ${status === "lost" ? "is lost" : "has failed"}`), "error");
    }
  }
});

// Theme and rail.
const dark = matchMedia("(prefers-color-scheme: dark)");
const themeChanged = () => dispatchEvent(new Event("themechange"));
dark.addEventListener("change", themeChanged);
$("#theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light"), next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("runner.theme", next);
  } catch { /* storage is turned off */ }
  themeChanged();
});
$("#fold").addEventListener("click", () => {
  const narrow = document.documentElement.dataset.rail !== "narrow";
  if (narrow) document.documentElement.dataset.rail = "narrow";
  else delete document.documentElement.dataset.rail;
  $("#fold").setAttribute("aria-expanded", String(!narrow));
  try {
    localStorage.setItem("runner.rail", narrow ? "narrow" : "wide");
  } catch { /* storage is turned off */ }
});

// Keys.
const help = [
  ["/", "filter"],
  ["1 … 5", "views"],
  ["j k", "next and previous run"],
  ["Enter", "details"],
  ["x", "select"],
  ["c", "compare the selected runs"],
  ["Esc", "close"],
  ["?", "this list"],
  ["drag", "zoom into a chart; shift: vertically; double click: back"],
  ["← → + −", "in a chart: read the values, zoom; Esc: back"],
];
const showKeys = () =>
  popover($("#keys"), h("div.keys", help.flatMap(([key, text]) => [h("kbd", key), h("span", text)])), { label: "Keyboard shortcuts" });
$("#keys").addEventListener("click", showKeys);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return void closeDrawer();
  if (event.target.closest("input, textarea, select, [role=dialog]")) return;
  const name = Object.keys(views)[Number(event.key) - 1];
  if (event.key === "/") {
    event.preventDefault();
    field.focus();
  } else if (event.key === "?") {
    showKeys();
  } else if (name) {
    go(address(name));
  } else if (current?.keys?.[event.key] && !(event.key === "Enter" && event.target.closest("a, button"))) {
    event.preventDefault();
    current.keys[event.key]();
  }
});

// Whether the server answers. A note appears only if it does not for longer than a restart takes.
let streamState = "connecting", awayLater;
function showConnection() {
  const live = $("#live"), away = $("#away");
  live.className = `live ${streamState === "live" ? "on" : streamState === "gone" ? "off" : ""}`;
  const toChange = "Tags, notes and runs can be changed in the page of the address that `runner ui` printed, with #token=";
  live.title = mayWrite() ? "" : mayRead() ? toChange : "Open the address that `runner ui` printed, with #token=";
  const words = { live: mayWrite() ? "live" : "read only", connecting: "connecting", gone: "disconnected" };
  $("span", live).textContent = mayRead() ? words[streamState] : "no token";
  clearTimeout(awayLater);
  if (streamState === "live" || !mayRead()) away.hidden = true;
  else awayLater = setTimeout(() => (away.hidden = false), 1500);
}
const askAccess = () => forgetOldToken().then((changed) => changed && (showConnection(), draw()), () => {});
listen((state) => {
  streamState = state;
  showConnection();
  if (state === "gone") askAccess(); // a server that was started anew has another token
  if (state === "live" && failed) draw();
});
onReachable((reachable) => {
  if (!reachable) $("#away").hidden = false;
  else if (streamState === "live" || !mayRead()) $("#away").hidden = true;
});
drawSaved();
draw();
askAccess().then(() => {
  if (tokenRefused()) toast("The token in this address is refused. runner ui prints the right address.", "error");
});
// What the other views need comes while nothing else is done.
(window.requestIdleCallback ?? setTimeout)(() => loadECharts().catch(() => {}), { timeout: 2000 });
