// The tab Logs of a run: its last lines, what is appended to them, earlier lines, and search.
import { debounce, empty, h, replace } from "./dom.js";
import { get } from "./api.js";
import { change, parameter } from "./state.js";
import { bytes, integer } from "./format.js";

const atOnce = 500, kept = 5000, lookEvery = 2000;

/** The text with what is searched marked. */
function marked(text, words) {
  const list = [], small = text.toLowerCase();
  let from = 0;
  for (let at = small.indexOf(words); words && at >= 0; at = small.indexOf(words, from)) {
    list.push(text.slice(from, at), h("mark", text.slice(at, at + words.length)));
    from = at + words.length;
  }
  return [...list, text.slice(from)];
}

function kindOf(text) {
  if (/error|exception|traceback|\bnan\b/i.test(text)) return ".error";
  return /warning/i.test(text) ? ".warning" : "";
}

export function logsTab(box, run) {
  if (!run.logs.length) {
    replace(
      box,
      empty(
        "No logs",
        run.run_dir_exists
          ? "The run has written none."
          : run.imported_from
          ? `The run was imported from ${run.imported_from}, without the files of its folder.`
          : "The run's folder was moved or deleted.",
      ),
    );
    let tab = null;
    return {
      refresh: (newest) => (tab ? tab.refresh(newest) : newest.logs.length && (tab = logsTab(box, newest))),
      dispose: () => tab?.dispose(),
    };
  }
  const file = h(
    "select",
    { "aria-label": "File" },
    run.logs.map((log) => h("option", { value: log.file, selected: log.file === parameter("file") }, `${log.file}, ${bytes(log.bytes)}`)),
  );
  const search = h("input", {
    type: "search",
    placeholder: "Search this log",
    "aria-label": "Search this log",
    value: parameter("search"),
  });
  const lines = h("div.logs", { tabIndex: 0, role: "log", "aria-live": "off", "aria-label": "Log" });
  const state = h("span.muted.small", { role: "status" });
  const earlier = h("button.plain", { type: "button" }, "Earlier lines"),
    later = h("button.plain", { type: "button", hidden: true }, "Later lines");
  let first = 1; // number of the first line that is shown
  let next = ""; // how far the log was read
  let follow = true, busy = false, disposed = false, found = 0;

  const row = ({ line, text, unfinished }) =>
    h(
      "div",
      { data: { line, ...(unfinished ? { unfinished: "" } : {}) } },
      h("span", String(line)),
      h(`span${kindOf(text)}`, marked(text, search.value.toLowerCase())),
    );

  function tellState(answer) {
    const all = `${integer(answer.total)} ${answer.total === 1 ? "line" : "lines"}, ${bytes(answer.bytes)}`;
    const shown = lines.childElementCount;
    state.textContent = search.value ? `${integer(found)} of ${all}${found > shown ? `; the last ${integer(shown)} are shown` : ""}` : all;
    earlier.disabled = Boolean(search.value) || first <= 1;
    later.hidden = !(answer.left > 0) || Boolean(lines.querySelector("[data-unfinished]"));
  }

  async function load() {
    const wanted = Number(parameter("line")) || 0, words = search.value, name = file.value;
    const from = wanted && !words ? Math.max(0, wanted - 200) : -atOnce;
    const answer = await get(`runs/${run.id}/logs`, { file: name, search: words, from, lines: atOnce + 100 });
    if (disposed || words !== search.value || name !== file.value) return;
    replace(lines, answer.lines.map(row));
    first = answer.lines[0]?.line ?? 1;
    next = answer.next;
    found = answer.matching;
    tellState(answer);
    const at = wanted && lines.querySelector(`[data-line="${wanted}"]`);
    if (at) {
      follow = false;
      at.classList.add("wanted");
      at.scrollIntoView({ block: "center" });
    } else if (follow) {
      lines.scrollTop = lines.scrollHeight;
    }
  }

  /** Asks only for what was appended since the last answer. */
  async function append() {
    const words = search.value, name = file.value;
    const answer = await get(`runs/${run.id}/logs`, { file: name, search: words, after: next, lines: 2000 });
    if (disposed || words !== search.value || name !== file.value) return;
    if (!answer.appended) return load(); // the file was rewritten
    if (answer.lines.length) {
      const unfinished = lines.querySelector("[data-unfinished]");
      if (unfinished && words) --found;
      unfinished?.remove();
      lines.append(...answer.lines.map(row));
      while (lines.childElementCount > kept) lines.firstElementChild.remove();
      first = Number(lines.firstElementChild.dataset.line);
      if (follow) lines.scrollTop = lines.scrollHeight;
    }
    next = answer.next;
    found = words ? found + answer.matching : answer.matching;
    tellState(answer);
  }

  async function once(work) {
    if (busy) return;
    busy = true;
    try {
      await work();
    } catch (error) {
      if (!lines.childElementCount) replace(lines, h("p.problem", error.message));
    } finally {
      busy = false;
    }
  }
  const again = () => load().catch((error) => replace(lines, h("p.problem", error.message)));

  earlier.addEventListener("click", () =>
    once(async () => {
      const from = Math.max(0, first - 1 - atOnce), height = lines.scrollHeight;
      const answer = await get(`runs/${run.id}/logs`, { file: file.value, from, lines: first - 1 - from });
      lines.prepend(...answer.lines.map(row));
      lines.scrollTop += lines.scrollHeight - height;
      first = from + 1;
      earlier.disabled = first <= 1;
    }));
  later.addEventListener("click", () => once(append));
  lines.addEventListener("scroll", () => (follow = lines.scrollTop + lines.clientHeight > lines.scrollHeight - 40));
  file.addEventListener("change", () => (change({ file: file.value, line: "" }), (follow = true), again()));
  search.addEventListener("input", debounce(() => (change({ search: search.value, line: "" }), again()), 200));
  replace(box, h("div.form", file, search, earlier, later, state), lines);
  again();
  const live = () => run.status === "running" && document.visibilityState === "visible" && follow && next && once(append);
  const clock = setInterval(live, lookEvery);
  return {
    refresh(newest) {
      run = newest;
      for (const log of run.logs) {
        if (![...file.options].some((one) => one.value === log.file)) file.append(h("option", { value: log.file }, log.file));
      }
      if (follow && next) once(append);
    },
    dispose() {
      disposed = true;
      clearInterval(clock);
    },
  };
}
